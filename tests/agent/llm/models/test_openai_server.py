"""The client for model servers, against a real server on this machine that misbehaves as servers do."""

import email.utils
import json
import os
import time
import traceback

import pytest
from pgo_agent.agent.llm.models import openai_server
from pgo_agent.agent.llm.models.openai_server import MOST_BYTES, ServerModel
from pgo_agent.agent.llm.models.types import FREE, Form, Gone, Reply
from pgo_agent.sandbox.errors import EnvironmentFault

from tests.agent.loopback import Answer, Server, completion, ended, failure, serving, unused_url

KEY = "sk-very-secret-0123456789"


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_server, "FIRST_WAIT", 0.1)


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in os.environ if n.startswith("OPENAI_")]:
        monkeypatch.delenv(name)


def ask(server: Server, prompt: str = "hello", timeout: float = 20.0, attempts: int = 3, form: Form = FREE) -> Reply:
    return ServerModel("tiny", server.url, KEY, timeout, attempts).complete(prompt, form=form)


def fault(server: Server, timeout: float = 20.0, attempts: int = 2) -> str:
    """The message of the EnvironmentFault that asking ends with. Never with the key in it, nor in the traceback."""
    with pytest.raises(Gone) as caught:
        ask(server, timeout=timeout, attempts=attempts)
    assert KEY not in "".join(traceback.format_exception(caught.value))
    return str(caught.value)


# answers --------------------------------------------------------------------------------------------------------------


def test_a_reply_comes_with_its_tokens_seconds_and_model() -> None:
    with serving([completion("héllo")]) as server:
        reply = ask(server)
    assert (reply.text, reply.prompt_tokens, reply.completion_tokens, reply.model) == ("héllo", 7, 3, "tiny-1")
    assert 0 < reply.seconds < 20


def test_the_request_is_one_user_message_with_the_key_in_its_header() -> None:
    with serving([completion()]) as server:
        ask(server, "rewrite\nthis")
    (request,) = server.requests
    assert request["path"] == "/v1/chat/completions"
    assert request["body"] == {"model": "tiny", "messages": [{"role": "user", "content": "rewrite\nthis"}]}
    assert request["headers"]["authorization"] == f"Bearer {KEY}"


def test_a_server_that_counts_no_tokens_is_fine() -> None:
    with serving([completion(usage=None)]) as server:
        reply = ask(server)
    assert (reply.text, reply.prompt_tokens, reply.completion_tokens) == ("done", None, None)


@pytest.mark.parametrize("number", [10**30, -1, "7", True, 7.5])
def test_a_number_of_tokens_that_is_none_or_fits_no_record_is_not_told(number: object) -> None:
    with serving([completion(usage={"prompt_tokens": number, "completion_tokens": 3})]) as server:
        reply = ask(server)
    assert (reply.prompt_tokens, reply.completion_tokens) == (None, 3)


@pytest.mark.parametrize(
    ("said", "told"), [("a\x1b[31m\nb ", "a [31m b"), ("", "tiny"), ("\n", "tiny"), (5, "tiny"), ("x" * 999, "x" * 100)]
)
def test_what_a_server_calls_itself_is_told_as_one_short_line(said: object, told: str) -> None:
    with serving([completion(model=said)]) as server:
        assert ask(server).model == told


REFUSED = {"role": "assistant", "content": None, "refusal": "I cannot help with that"}


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(completion(choices=[]), id="no choices"),
        pytest.param(completion(choices=None), id="choices are null"),
        pytest.param(completion(None), id="content is null"),
        pytest.param(completion(choices=[{"message": REFUSED}]), id="the model refused"),
        pytest.param(completion(choices=[None]), id="a choice is null"),
        pytest.param(completion(choices=[{"message": {"content": 5}}]), id="content is a number"),
        pytest.param(completion(""), id="content is empty"),
    ],
)
def test_a_reply_without_words_is_an_empty_text_and_no_exception(answer: Answer) -> None:
    with serving([answer]) as server:
        assert ask(server).text == ""
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("answer", "text", "told"),
    [
        (
            ended(None, "stop", "I cannot\nhelp\x1b[31m with that"),
            "",
            "the model refused: I cannot help [31m with that",
        ),
        (ended("I wo", "content_filter"), "I wo", "the server's filter withheld the reply"),
        (ended("def kern", "length"), "def kern", "the reply was cut off at its limit"),
        (ended("done", "stop"), "done", ""),
        (ended("done", "of its own accord"), "done", ""),
        (completion(choices=[{"message": {"content": "done"}, "finish_reason": ["length"]}]), "done", ""),
    ],
)
def test_a_reply_that_is_not_whole_says_why(answer: Answer, text: str, told: str) -> None:
    with serving([answer]) as server:
        reply = ask(server)
    assert (reply.text, reply.ended) == (text, told)


def test_a_reply_says_how_many_attempts_it_took() -> None:
    with serving([failure(500), completion(), completion()]) as server:
        assert ask(server).attempts == 2 and ask(server).attempts == 1


def test_content_in_parts_is_joined() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]
    with serving([completion(choices=[{"message": {"content": parts}}])]) as server:
        assert ask(server).text == "ab"


def test_a_reply_of_200_kilobytes_arrives_whole() -> None:
    with serving([completion("x" * 200_000)]) as server:
        assert len(ask(server).text) == 200_000


def test_bytes_that_are_not_utf8_are_replaced() -> None:
    body = completion("caf@").body.replace(b"@", b"\xe9")
    with serving([Answer(body)]) as server:
        assert ask(server).text == "caf\N{REPLACEMENT CHARACTER}"


def test_half_a_character_in_the_reply_is_replaced() -> None:
    with serving([completion("a\ud800b")]) as server:
        assert ask(server).text == "a?b"


def test_half_a_character_in_the_prompt_is_replaced() -> None:
    with serving([completion()]) as server:
        ask(server, "a\ud800b")
    assert server.requests[0]["body"]["messages"][0]["content"] == "a?b"


# what passes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(failure(500), id="500"),
        pytest.param(failure(503), id="503"),
        pytest.param(failure(408), id="408"),
        pytest.param(failure(429), id="429 without Retry-After"),
        pytest.param(failure(429, Retry_After="nan"), id="429 with a senseless Retry-After"),
        pytest.param(Answer(resets=True), id="connection reset"),
        pytest.param(Answer(completion().body[:40], promised=400), id="fewer bytes than promised"),
        pytest.param(Answer(completion().body[:40]), id="body cut off in the middle of the JSON"),
        pytest.param(Answer(completion().body[:40], chunked=True), id="a stream that is cut off"),
        pytest.param(Answer(completion().body, chunked=True), id="a stream without its end"),
        pytest.param(Answer(b" " * (MOST_BYTES + 1) + completion().body), id="more bytes than any reply has"),
        pytest.param(Answer(b"<html>502 Bad Gateway</html>", headers={"Content-Type": "text/html"}), id="a web page"),
        pytest.param(Answer(b"\xff\xfe\x00"), id="bytes that are no text"),
        pytest.param(Answer(b"[" * 100_000), id="JSON nested without end"),
        pytest.param(Answer(b"[]"), id="JSON of another shape"),
    ],
)
def test_what_may_pass_is_tried_again(first: Answer) -> None:
    with serving([first, completion()]) as server:
        assert ask(server).text == "done"
        assert len(server.requests) == 2


def test_two_errors_of_the_server_are_survived_with_growing_waits() -> None:
    with serving([failure(500), failure(500), completion()]) as server:
        reply = ask(server)
    assert reply.text == "done" and len(server.requests) == 3
    assert reply.seconds >= 0.3  # once 0.1, then 0.2


def test_retry_after_is_waited_for() -> None:
    with serving([failure(429, Retry_After="0.6"), completion()]) as server:
        assert ask(server).seconds >= 0.6


def test_retry_after_may_be_a_date() -> None:
    date = email.utils.formatdate(time.time() + 2, usegmt=True)
    with serving([failure(429, Retry_After=date), completion()]) as server:
        assert ask(server).seconds >= 0.8  # a date has no fractions: one to two seconds from now


def test_a_wait_of_an_hour_is_not_waited_for() -> None:
    with serving([failure(429, "slow down", Retry_After="3600")]) as server:
        assert "answered 429: slow down (1 attempt); it asks to wait 3600 s" in fault(server)
        assert len(server.requests) == 1


def test_attempts_are_counted_in_one_layer_only() -> None:
    with serving([failure(500, "broken")]) as server:
        assert f"the model server {server.url} answered 500: broken (3 attempts)" in fault(server, attempts=3)
        assert len(server.requests) == 3


# what does not pass ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        pytest.param(failure(401, f"bad key {KEY}"), "refused the key", id="401"),
        pytest.param(failure(403, f"not for {KEY}"), "answered 403 for 'tiny': not for ***", id="403"),
        pytest.param(failure(404, "no such model"), "answered 404 for 'tiny': no such model", id="404"),
        pytest.param(failure(400, "too\nlong\x1b[31m"), "answered 400 for 'tiny': too long [31m", id="400"),
        pytest.param(Answer(b"{", 422), "answered 422", id="422 with a broken body"),
        pytest.param(Answer(b"\xff", 404), "answered 404", id="404 with bytes that are no text"),
        pytest.param(
            Answer(json.dumps({"error": {"code": "insufficient_quota"}}).encode(), 429),
            "quota",
            id="the quota is spent",
        ),
    ],
)
def test_a_refusal_is_loud_at_once(answer: Answer, words: str) -> None:
    with serving([answer]) as server:
        assert words in fault(server)
        assert len(server.requests) == 1


def test_the_key_is_told_to_nobody_whatever_the_server_says() -> None:
    for status in (400, 401, 403, 404, 429, 500):
        with serving([failure(status, f"{KEY} in {KEY}")]) as server:
            fault(server, attempts=1)
            assert KEY not in repr(ServerModel("tiny", server.url, KEY))


def test_a_server_that_is_not_there_is_named() -> None:
    url = unused_url()
    with pytest.raises(EnvironmentFault, match="cannot be reached") as caught:
        ServerModel("tiny", url, attempts=2).complete("hello")
    assert url in str(caught.value) and "(2 attempts)" in str(caught.value)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Answer(hangs=True), id="silence"),
        pytest.param(Answer(b" ", promised=10**6, trickles=True), id="a byte now and then"),
    ],
)
def test_a_hang_ends_at_the_deadline(answer: Answer) -> None:
    began = time.monotonic()
    with serving([answer]) as server:
        assert "did not answer within 1 s (1 attempt)" in fault(server, timeout=1.0, attempts=1)
    assert time.monotonic() - began < 5


def test_a_hang_is_tried_again() -> None:
    with serving([Answer(hangs=True), completion()]) as server:
        assert ask(server, timeout=1.0).text == "done"


# what is told of the wanted reply -------------------------------------------------------------------------------------

OBJECT = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
WANTED = Form(OBJECT)


def fields(server: Server) -> list[list[str]]:
    """Of each request, beside model and messages."""
    return [sorted(r["body"].keys() - {"model", "messages"}) for r in server.requests]


def test_a_server_is_told_the_schema_of_the_reply_and_its_limit() -> None:
    with serving([completion("{}")]) as server:
        ask(server, form=Form(OBJECT, 500))
    body = server.requests[0]["body"]
    assert body["max_tokens"] == 500
    assert body["response_format"]["type"] == "json_schema"
    assert body["response_format"]["json_schema"] == {"name": "reply", "strict": True, "schema": OBJECT}


@pytest.mark.parametrize(
    "refusal",
    [
        failure(400, "Unknown field: response_format"),
        failure(400, "'response_format.type' must be 'text' or 'json_object'"),
        failure(422, "extra fields not permitted"),
        failure(400, "bad request"),
        failure(500, "[{'type': 'literal_error', 'loc': ('body', 'response_format', 'type')}]"),
        failure(501, "not implemented"),
        Answer(b"<html>no</html>", 400),
    ],
)
def test_a_server_that_refuses_the_schema_is_asked_once_without_it_and_never_so_again(refusal: Answer) -> None:
    with serving([refusal, completion("{}"), completion("{}")]) as server:
        began = time.monotonic()
        assert ask(server, form=WANTED, attempts=1).text == "{}"
        assert time.monotonic() - began < 20
        assert ask(server, form=WANTED, attempts=1).text == "{}"
    assert fields(server) == [["response_format"], [], []]


def test_a_request_that_is_bad_without_the_schema_too_is_refused_and_nothing_is_learnt_of_it() -> None:
    with serving(
        [failure(400, "the prompt is too long"), failure(400, "the prompt is too long"), completion()]
    ) as server:
        with pytest.raises(Gone, match="answered 400 for 'tiny': the prompt is too long"):
            ask(server, form=WANTED)
        ask(server, form=WANTED)
    assert fields(server) == [["response_format"], [], ["response_format"]]


def test_a_server_that_names_the_limit_otherwise_is_told_it_by_its_own_name() -> None:
    said = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    with serving([failure(400, said), completion(), completion()]) as server:
        for _ in range(2):
            ask(server, form=Form(OBJECT, 500), attempts=1)
    late = ["max_completion_tokens", "response_format"]
    assert fields(server) == [["max_tokens", "response_format"], late, late]


def test_a_server_that_refuses_every_limit_is_not_asked_without_one() -> None:
    with serving([failure(400, "no max_tokens"), failure(400, "no max_completion_tokens")]) as server:
        with pytest.raises(Gone, match="no max_completion_tokens"):
            ask(server, form=Form(None, 500))
        assert len(server.requests) == 2


def test_an_error_of_the_server_is_tried_again_with_the_schema() -> None:
    with serving([failure(500, "out of memory"), completion()]) as server:
        ask(server, form=WANTED)
    assert fields(server) == [["response_format"], ["response_format"]]
