"""`relay:DIR`, against real files and processes that write them: nothing is read half, nothing is followed out."""

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pgo_agent.agent.llm import replies
from pgo_agent.agent.llm.models import finished_file, named
from pgo_agent.agent.llm.models.relay import LINE, RelayModel
from pgo_agent.agent.llm.models.types import Asker, Reply, Suspended
from pgo_agent.sandbox.errors import EnvironmentFault, UsageFault

from tests.agent import answering, loopback

PROMPT = "Rewrite this:\r\n\ttl.store(é)\n\n--- the end"
EDIT = "It waits.\n<<<<<<< SEARCH\n    a\n=======\n    b\n>>>>>>> REPLACE\n"


class Folder:
    """A relay folder and what its model told."""

    def __init__(self, path: Path) -> None:
        self.path, self.events = path, list[dict[str, Any]]()
        self.asker = Asker(
            "add-1", "add", "d", lambda kind, **fields: self.events.append({"type": kind, **fields}), wait=False
        )

    def model(self, run: str = "add-1", wait: bool = False) -> RelayModel:
        return RelayModel(self.path, replace(self.asker, run=run, wait=wait))

    def asked(self, prompt: str = PROMPT, run: str = "add-1") -> Suspended:
        """Asks without a reply there."""
        with pytest.raises(Suspended) as caught:
            self.model(run).complete(prompt)
        return caught.value

    def answered(self, data: bytes | str) -> Reply:
        """What comes of a reply with these bytes."""
        self.asked().reply.write_bytes(data.encode() if isinstance(data, str) else data)
        return self.model().complete(PROMPT)

    @property
    def notes(self) -> str:
        return "\n".join(e["text"] for e in self.events if e["type"] == "note")


def prompt_of(request: str) -> str:
    return request.partition(LINE)[2]


SETTLED = 0.3  # seconds in which nothing changes, here: what is written slowly has longer pauses


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.setattr(finished_file, "SETTLED", SETTLED)
    return Folder(tmp_path / "inbox")


@contextmanager
def agent(folder: Path, how: str, text: str) -> Iterator[None]:
    """The answering agent, while something else goes on."""
    said = folder.parent / "said.md"
    said.write_text(text)
    process = subprocess.Popen([sys.executable, answering.__file__, folder, how, said, str(2 * SETTLED)])
    try:
        yield
    finally:
        process.kill()
        process.wait()


# requests -------------------------------------------------------------------------------------------------------------


def test_a_request_holds_the_prompt_to_the_byte_behind_what_to_do(folder: Folder) -> None:
    asked = folder.asked()
    text = asked.request.read_bytes().decode()
    assert prompt_of(text) == PROMPT
    assert "optimizer of run add-1" in text.splitlines()[0] and asked.reply.name in text


def test_a_prompt_that_holds_the_dividing_line_comes_back_whole(folder: Folder) -> None:
    once = folder.asked().request.read_text()
    assert prompt_of(folder.asked(once).request.read_text()) == once


def test_the_same_prompt_asked_again_has_one_request(folder: Folder) -> None:
    first, second = folder.asked(), folder.asked()
    assert (first.request, first.reply) == (second.request, second.reply)
    assert list(folder.path.iterdir()) == [first.request]


def test_numbers_go_on_where_earlier_ones_ended(folder: Folder) -> None:
    folder.asked("a")
    (folder.path / "041-00000000-reply.md").write_text("of another run")
    assert [folder.asked(p).request.name[:4] for p in ("b", "a", "c")] == ["042-", "001-", "043-"]


def test_two_runs_with_the_same_prompt_in_one_folder_do_not_share_a_reply(folder: Folder) -> None:
    folder.asked(run="add-1").reply.write_text(EDIT)
    folder.asked(run="add-2")
    assert folder.model("add-1").complete(PROMPT).text == EDIT


def test_a_new_folder_is_for_its_owner_alone(folder: Folder) -> None:
    folder.asked()
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700


def test_a_request_does_not_go_through_a_link_that_lies_in_its_way(folder: Folder, tmp_path: Path) -> None:
    asked, mine = folder.asked(), tmp_path / "mine"
    asked.request.unlink()
    mine.write_text("mine")
    (folder.path / f".{asked.request.name.removesuffix('-request.md')}.part").symlink_to(mine)
    assert folder.asked().request.read_text() and mine.read_text() == "mine"


# replies --------------------------------------------------------------------------------------------------------------


def test_a_reply_is_what_stands_in_the_file(folder: Folder) -> None:
    reply = folder.answered(EDIT)
    assert (reply.text, reply.model, reply.prompt_tokens, reply.completion_tokens) == (EDIT, "relay", None, None)


@pytest.mark.parametrize("how", ["renamed", "streamed"])
def test_a_reply_by_another_process_is_waited_for_and_read_whole(folder: Folder, how: str) -> None:
    model = folder.model(wait=True)
    with agent(folder.path, how, EDIT):
        assert model.complete(PROMPT).text == EDIT
    (waiting,) = (e for e in folder.events if e["type"] == "model.waiting")
    assert Path(waiting["reply"]).read_text() == EDIT and "is not there" not in folder.notes


def test_a_reply_that_grows_by_one_append_after_another_is_read_when_it_stands_still(folder: Folder) -> None:
    reply, model = folder.asked().reply, folder.model(wait=True)
    grow = "import sys, time\nfor _ in range(6):\n    open(sys.argv[1], 'a').write('line\\n'); time.sleep(0.1)"
    with subprocess.Popen([sys.executable, "-c", grow, reply]):
        assert model.complete(PROMPT).text == "line\n" * 6


def test_a_reply_that_somebody_has_open_is_not_taken_for_whole(folder: Folder) -> None:
    with folder.asked().reply.open("w") as file:
        file.write(EDIT)
        file.flush()
        assert folder.asked().why == "is still being written"
    assert folder.model().complete(PROMPT).text == EDIT


@pytest.mark.parametrize("nothing", ["", "\n\n"])
def test_an_empty_reply_is_none_yet(folder: Folder, nothing: str) -> None:
    folder.asked().reply.write_text(nothing)
    assert folder.asked().why == "is empty"


def test_a_person_who_saves_an_empty_file_is_told_while_the_run_waits(folder: Folder) -> None:
    reply = folder.asked().reply
    reply.touch()
    later = f"import time; time.sleep({4 * SETTLED}); open({str(reply)!r}, 'w').write('now')"
    with subprocess.Popen([sys.executable, "-c", later]):
        assert folder.model(wait=True).complete(PROMPT).text == "now"
    assert f"{reply.name} is empty" in folder.notes


# heads ----------------------------------------------------------------------------------------------------------------


def test_a_head_says_who_answered_and_what_it_took(folder: Folder) -> None:
    reply = folder.answered(f"---\nmodel: tiny 7b\ntokens: 1200 300\n---\n{EDIT}")
    told = (reply.text, reply.model, reply.prompt_tokens, reply.completion_tokens)
    assert told == (EDIT, "tiny 7b", 1200, 300)


@pytest.mark.parametrize(
    "head",
    [
        pytest.param("---\nmodel: me\n---\n", id="without tokens"),
        pytest.param("---\r\ntokens: many\r\nmodel: me\r\n---\r\n", id="tokens that are none, CRLF"),
        pytest.param("---\nmodel: me\ntokens: 99999999999999999999 1\n---\n", id="more tokens than a record holds"),
        pytest.param("\ufeff---\nmodel: me \ntokens: -5 3\n---\n", id="a byte order mark, less than no tokens"),
        pytest.param("---\nmodel: \x1b me\x07\u202e\n---\n", id="control characters"),
    ],
)
def test_a_head_is_read_as_far_as_it_says_something(folder: Folder, head: str) -> None:
    reply = folder.answered(head + EDIT)
    assert (reply.text, reply.model, reply.prompt_tokens, reply.completion_tokens) == (EDIT, "me", None, None)


@pytest.mark.parametrize(
    "text", ["---\nmy thoughts\n---\ncode", "---\nmodel: me\ncode", "model: me\n---\ncode", "---\n---\ncode"]
)
def test_what_only_looks_like_a_head_is_part_of_the_reply(folder: Folder, text: str) -> None:
    reply = folder.answered(text)
    assert (reply.text, reply.model) == (text, "relay")


# what else lies there -------------------------------------------------------------------------------------------------


def test_a_reply_of_300_kilobytes_arrives_whole(folder: Folder) -> None:
    assert len(folder.answered("x" * 300_000).text) == 300_000


def test_a_reply_of_many_megabytes_is_cut_and_refused_in_words(folder: Folder) -> None:
    reply = folder.answered("é" * 20_000_000)
    assert len(reply.text) < 1_100_000
    assert "longer than 1000000 characters" in replies.parse(reply.text, loopback.SOURCE).errors[0]


def test_bytes_that_are_not_utf8_are_replaced_and_their_place_is_told(folder: Folder) -> None:
    assert folder.answered(b"caf\xe9 " + EDIT.encode()).text == f"caf\N{REPLACEMENT CHARACTER} {EDIT}"
    assert "is not UTF-8 (byte 4)" in folder.notes


def _link_out(reply: Path) -> None:
    (reply.parent.parent / "secret").write_text("secret")
    reply.symlink_to("../secret")


@pytest.mark.parametrize(
    ("put", "words"),
    [
        pytest.param(_link_out, "is a link: none is followed", id="a link to a file outside"),
        pytest.param(lambda reply: reply.symlink_to("nowhere"), "is a link: none is followed", id="a link to nothing"),
        pytest.param(os.mkfifo, "is no plain file", id="a pipe"),
        pytest.param(os.mkdir, "is no plain file", id="a folder"),
    ],
)
@pytest.mark.parametrize("wait", [False, True])
def test_what_is_no_plain_file_is_refused_at_once(folder: Folder, put: Any, words: str, wait: bool) -> None:
    asked = folder.asked()
    put(asked.reply)
    with pytest.raises(EnvironmentFault, match=words) as caught:
        folder.model(wait=wait).complete(PROMPT)
    assert str(asked.reply) in str(caught.value) and "resume" in str(caught.value)


def test_other_files_in_the_folder_are_left_alone(folder: Folder) -> None:
    folder.asked()
    (folder.path / "002-zzzzzzzz-reply.md").mkdir()
    (folder.path / "notes.md").write_text("mine")
    assert folder.asked("other").request.name[:4] == "002-"
    assert (folder.path / "notes.md").read_text() == "mine"


# folders --------------------------------------------------------------------------------------------------------------


def test_a_folder_is_the_same_from_anywhere(folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = named("relay:inbox", folder.asker)
    assert model is not None and model.name == f"relay:{tmp_path / 'inbox'}"


@pytest.mark.parametrize("text", ["relay:", "relay: ", "replay:"])
def test_a_path_must_be_given(folder: Folder, text: str) -> None:
    with pytest.raises(UsageFault, match="names no path"):
        named(text, folder.asker)


def test_a_file_in_place_of_the_folder_is_a_usage_fault(folder: Folder) -> None:
    folder.path.write_text("")
    with pytest.raises(UsageFault, match="is no folder"):
        folder.model()


@pytest.mark.parametrize("text", ["embedded", "", " "])
def test_the_embedded_policy_is_no_model(folder: Folder, text: str) -> None:
    assert named(text, folder.asker) is None


def test_an_interrupted_wait_ends_at_once(folder: Folder) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from pgo_agent.agent.llm.models.types import Asker; from pgo_agent.agent.llm.models.relay import RelayModel\n"
        "RelayModel(Path(sys.argv[1]), Asker('r', 'k', 'd', lambda *_, **__: print(flush=True))).complete('hello')"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, folder.path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None and process.stdout.readline()
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) != 0 and time.monotonic() - began < 5
