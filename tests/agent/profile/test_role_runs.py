"""Whole runs whose roles are models on a server: who answered is recorded, and a run outlives its models."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.agent.command_line import Done, pgo, write
from tests.agent.llm.models.test_model_run import EDIT, SHORT
from tests.agent.loopback import Answer, Server, completion, ended, failure, serving

SUMMARY = completion(json.dumps({"cases": [{"case": "1m", "text": "It moves bytes, and little else.", "order": []}]}))
SUMMARIZED = (*SHORT[:-1], "summarizer=tiny")


def ran(folder: Path, server: Server, *args: str) -> Done:
    if not (folder / "add.py").exists():
        write(folder)
    return pgo(*args, cwd=folder, OPENAI_BASE_URL=server.url, OPENAI_API_KEY="k")


def shown(folder: Path) -> tuple[dict[str, Any], str]:
    """As JSON, and as a person sees it."""
    return json.loads(pgo("show", "--json", cwd=folder).out), " ".join(pgo("show", cwd=folder).out.split())


@pytest.fixture(scope="module")
def summarized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("summarized")
    with serving([SUMMARY]) as server:
        done = ran(folder, server, *SUMMARIZED, "--tokens", "90000")
        assert done.code == 0, done.err
        assert "tiny-1 replied as summarizer" in done.err and len(server.requests) == 1
    return folder


def test_a_models_summary_is_in_the_record_and_who_wrote_it_is_shown(summarized: Path) -> None:
    found, text = shown(summarized)
    (profile,) = found["profiles"]
    assert (profile["author"], profile["summary"]["text"]) == ("tiny-1", "It moves bytes, and little else.")
    (call,) = found["calls"]
    assert (call["role"], call["model"], call["calls"], call["useless"]) == ("summarizer", "tiny-1", 1, 0)
    assert found["fallbacks"] == [] and found["spent"]["tokens"] == 10
    assert "by static, in short by tiny-1: " in text and "summarizer: tiny-1: 1 call, 7 + 3 tokens" in text
    assert "spent: 10 of 90000 tokens" in text


@pytest.mark.slow
def test_a_recording_gives_each_role_its_own_replies(summarized: Path, tmp_path: Path) -> None:
    assert pgo("recording", "-o", tmp_path / "a.jsonl", cwd=summarized).code == 0
    (line,) = (tmp_path / "a.jsonl").read_text().splitlines()[1:]
    assert json.loads(line)["role"] == "summarizer"
    write(tmp_path)
    models = ("--model", "summarizer=replay:a.jsonl", "--model", "replay:a.jsonl")
    done = pgo(*SHORT[:-2], *models, "--json", "--tokens", "0", cwd=tmp_path)
    assert done.code == 0, done.err
    (event,) = [e for e in done.events if e["type"] == "profile.completed"]
    assert event["author"] == "tiny-1"
    (event,) = [e for e in done.events if e["type"] == "model.exhausted"]
    assert event["role"] == "optimizer"  # it has no reply in there
    found, _ = shown(tmp_path)
    assert found["spent"]["tokens"] == 0 and [f["role"] for f in found["fallbacks"]] == ["optimizer"]


@pytest.mark.slow
def test_a_server_that_is_gone_after_its_first_reply_leaves_the_run_to_the_embedded_moves(tmp_path: Path) -> None:
    with serving([completion(EDIT), failure(401)]) as server:
        done = ran(tmp_path, server, *SHORT, "--candidates", "4", "--width", "2", "--patience", "4")
        assert len(server.requests) == 2
    assert done.code == 0, done.err
    assert "refused the key" in done.err and "the embedded moves go on alone" in done.err
    found, text = shown(tmp_path)
    assert len(found["verdicts"]) > 2 and all(v["verdict"] for v in found["verdicts"])
    (fallback,) = found["fallbacks"]
    assert (fallback["role"], fallback["about"]) == ("optimizer", "") and "answered 401" in fallback["why"]
    assert "optimizer: embedded from there on: the server refused the key" in text


@pytest.mark.slow
def test_a_budget_too_small_for_a_prompt_asks_nobody_and_the_run_goes_on(tmp_path: Path) -> None:
    with serving([completion(EDIT)]) as server:
        done = ran(tmp_path, server, *SHORT, "--tokens", "300")
        assert server.requests == []
    assert done.code == 0, done.err
    assert "the budget is spent: of 300 tokens 300 are left" in " ".join(done.err.split())
    assert shown(tmp_path)[0]["spent"]["tokens"] == 0


@pytest.mark.slow
def test_a_wrong_address_is_loud_at_the_first_call_of_a_role_whatever_the_others_said(tmp_path: Path) -> None:
    with serving([SUMMARY, failure(404, "no such model")]) as server:
        done = ran(tmp_path, server, *SHORT, "--model", "summarizer=tiny")
    assert done.code == 3 and "answered 404 for 'tiny': no such model" in done.err
    with serving([completion(EDIT)]) as server:
        assert ran(tmp_path, server, "resume").code == 0
        assert len(server.requests) == 1  # the summary is there


@pytest.mark.slow
def test_a_summary_that_is_not_there_yet_suspends_the_run_and_is_taken_from_its_file(tmp_path: Path) -> None:
    write(tmp_path)
    done = pgo(*SUMMARIZED[:-1], "summarizer=relay:inbox", "--no-wait", cwd=tmp_path)
    assert done.code == 5, done.err
    (request,) = (tmp_path / "inbox").glob("*-request.md")
    assert "pgo-agent asks: summarizer of run" in request.read_text() and str(tmp_path / "inbox") in shown(tmp_path)[1]
    text = json.loads(SUMMARY.body)["choices"][0]["message"]["content"]
    request.with_name(request.name.replace("request", "reply")).write_text(f"---\nmodel: a person\n---\n{text}")
    assert pgo("resume", "--no-wait", cwd=tmp_path).code == 0
    found, _ = shown(tmp_path)
    assert found["profiles"][0]["author"] == "a person" and found["state"] == "done"


NOT_UTF8 = Answer(completion('{"cases": ["caf@"]}').body.replace(b"@", b"\xe9"))
FAULTS = [
    *(NOT_UTF8, ended('{"cases": [', "content_filter")),  # the summarizer's reply, and what it says to the repair
    *(failure(429, Retry_After="0.1"), failure(500), Answer(completion(EDIT).body[:40], chunked=True), completion("")),
    *(Answer(resets=True), Answer(b"{"), ended(None, "stop", "I cannot help with that")),
    *(failure(503), ended(EDIT[: len(EDIT) // 2], "length")),
    completion("x = 1\n" * 33_000),
    completion(EDIT),
]


@pytest.mark.slow
def test_no_fault_of_a_server_loses_a_run(tmp_path: Path) -> None:
    """Each in a call of its own, or an attempt of it; at last it hangs up for good."""
    with serving([*FAULTS, Answer(resets=True)]) as server:
        budgets = ("--candidates", "12", "--patience", "12")
        done = ran(tmp_path, server, *SHORT, "--model", "summarizer=tiny", *budgets)
        assert len(server.requests) >= len(FAULTS) + 4
    assert done.code == 0, done.err
    for told in (
        "the server's filter withheld the reply",
        "the model refused: I cannot help with that",
        "the reply was cut off at its limit",
        "cannot be reached",
    ):
        assert told in done.err
    found, _ = shown(tmp_path)
    assert found["state"] == "done" and all(v["verdict"] for v in found["verdicts"])
    assert [(f["role"], bool(f["about"])) for f in found["fallbacks"]] == [("summarizer", True), ("optimizer", False)]
