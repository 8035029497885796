"""Recordings: what a run asked and was told is written as it was, and what is read back is checked line by line."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from pgo_agent.agent.commands import recordings
from pgo_agent.agent.llm.models import recording
from pgo_agent.agent.llm.models.replay import ReplayModel
from pgo_agent.agent.llm.models.types import Asker, Exhausted, Reply
from pgo_agent.agent.run.facts import RunFacts
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.sandbox.errors import EnvironmentFault, UsageFault

from tests.agent.breaking import record
from tests.agent.command_line import pgo, write
from tests.agent.llm.models.test_model_run import EDIT, SHORT
from tests.agent.loopback import completion, serving

CALLS = [("first?", "1", "tiny"), ("second?", "2", "tiny"), ("thïrd?\r\n", "3\u2028", "big")]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A run with three calls."""
    opened = Store(tmp_path / "w")
    opened.add_run("add-1", Path("/k/add.py"), "digest", "pass\n", "h200", RunSettings(), RunFacts())
    for prompt, text, model in CALLS:
        opened.add_call("add-1", Reply(text, 7, None, 0.5, model), "template", prompt, "")
    return opened


@pytest.fixture
def file(store: Store, tmp_path: Path) -> Path:
    recordings.write(store, "last", tmp_path / "a.jsonl")
    return tmp_path / "a.jsonl"


class Played:
    """A replay and what it told."""

    def __init__(self, file: Path, asked: tuple[str, ...] = (), target: str = "add", digest: str = "digest") -> None:
        self.events = list[dict[str, Any]]()
        asker = Asker("add-2", target, digest, self.note, asked=asked)
        self.model = ReplayModel(file, asker)

    def note(self, kind: str, **fields: object) -> None:
        self.events.append({"type": kind, **fields})

    def replies(self, *prompts: str) -> list[str]:
        return [self.model.complete(p).text for p in prompts]


# writing and reading --------------------------------------------------------------------------------------------------


def test_a_recording_holds_every_call_as_it_was(file: Path) -> None:
    found = recording.read(file)
    assert (found.head.target, found.head.digest, found.head.models) == ("add", "digest", ("tiny", "big"))
    assert [(c.prompt, c.reply, c.model) for c in found.calls] == CALLS
    assert {(c.role, c.prompt_tokens, c.completion_tokens) for c in found.calls} == {("optimizer", 7, None)}


def test_a_run_that_asked_nobody_has_no_recording(store: Store) -> None:
    store.add_run("add-2", Path("add.py"), "d", "", "h200", RunSettings(), RunFacts())
    with pytest.raises(UsageFault, match="run add-2 asked no model"):
        recordings.write(store, "add-2", None)


def test_a_recording_that_cannot_be_written_says_why(store: Store, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match=r"no/a\.jsonl: No such file"):
        recordings.write(store, "last", tmp_path / "no" / "a.jsonl")


@pytest.mark.parametrize(
    ("n", "change", "words"),
    [
        pytest.param(1, lambda line: b"", "line 1: it is no JSON", id="no head"),
        pytest.param(1, lambda line: line.replace(b'"layout": 1', b'"layout": 2'), "of layout 1", id="another layout"),
        pytest.param(
            1, lambda line: line.replace(b'"digest"', b'"digits"'), "line 1: it has no digest", id="no digest"
        ),
        pytest.param(3, lambda line: line[: len(line) // 2], "line 3: it is no JSON", id="cut off"),
        pytest.param(3, lambda line: b"\xff\xfe", "line 3: it is no JSON", id="no text"),
        pytest.param(3, lambda line: b"[" * 100_000, "line 3: it is no JSON", id="nested without end"),
        pytest.param(3, lambda line: b"[]", "line 3: it is no JSON object", id="a list"),
        pytest.param(
            2, lambda line: line.replace(b'"reply": "1"', b'"reply": 1'), "line 2: reply is no text", id="type"
        ),
        pytest.param(2, lambda line: line.replace(b'"reply"', b'"r"'), "line 2: it has no reply", id="no reply"),
        pytest.param(
            4, lambda line: line.replace(b"?", b"!"), "line 4: its prompt is not the one", id="changed prompt"
        ),
        pytest.param(4, lambda line: line.replace(b": 7", b": -7"), "line 4: prompt_tokens is no number", id="tokens"),
        pytest.param(
            4, lambda line: line.replace(b": 7", b": " + b"9" * 99), "line 4: prompt_tokens", id="many tokens"
        ),
    ],
)
def test_a_damaged_line_is_refused_with_its_number(file: Path, n: int, change: Any, words: str) -> None:
    lines = file.read_bytes().splitlines()
    assert change(lines[n - 1]) != lines[n - 1]
    lines[n - 1] = change(lines[n - 1])
    file.write_bytes(b"\n".join(lines))
    with pytest.raises(UsageFault) as caught:
        Played(file)
    assert words in str(caught.value) and str(file) in str(caught.value)


def test_an_empty_file_is_no_recording(file: Path) -> None:
    file.write_text("")
    with pytest.raises(UsageFault, match="line 1: it is missing"):
        Played(file)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageFault, match=r"cannot read the recording .*nothing.jsonl: No such file"):
        Played(tmp_path / "nothing.jsonl")


def test_half_a_character_in_a_reply_does_not_reach_the_record(file: Path) -> None:
    file.write_text(file.read_text().replace('"reply": "1"', '"reply": "a\\ud800b"'))
    assert Played(file).replies("first?") == ["a?b"]


def test_a_recording_of_another_kernel_is_refused(file: Path) -> None:
    with pytest.raises(UsageFault, match="of another kernel: 'add'"):
        Played(file, target="another")


def test_one_of_another_text_of_the_kernel_is_played_and_that_is_said(file: Path) -> None:
    played = Played(file, digest="another")
    assert played.replies("first?") == ["1"]
    (note,) = played.events
    assert "another text of add" in str(note["text"])


# replies --------------------------------------------------------------------------------------------------------------


def test_each_prompt_gets_its_own_reply_whatever_the_order(file: Path) -> None:
    played = Played(file)
    assert played.replies("thïrd?\r\n", "first?", "second?") == ["3\u2028", "1", "2"]
    assert played.events == []


def test_a_prompt_that_was_not_recorded_gets_the_next_reply_and_that_is_said(file: Path) -> None:
    played = Played(file)
    assert played.replies("second?", "new?", "newer?") == ["2", "1", "3\u2028"]
    assert [e["type"] for e in played.events] == ["note", "note"] and "no such prompt" in played.events[0]["text"]


def test_after_the_last_reply_it_is_exhausted(file: Path) -> None:
    played = Played(file)
    played.replies("a", "b", "c")
    with pytest.raises(Exhausted, match=r"all replies of a\.jsonl were given"):
        played.replies("d")


def test_a_resumed_run_goes_on_where_it_was(file: Path) -> None:
    assert Played(file, asked=("new?", "third?")).replies("newer?") == ["3\u2028"]
    assert Played(file, asked=("second?", "new?")).replies("newer?") == ["3\u2028"]


def test_a_reply_is_told_with_its_writer_and_without_tokens(file: Path) -> None:
    reply = Played(file).model.complete("first?")
    assert (reply.model, reply.prompt_tokens, reply.completion_tokens) == ("tiny", None, None)


# runs -----------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_replayed_run_has_the_same_candidates_and_verdicts_and_then_goes_on_alone(tmp_path: Path) -> None:
    write(tmp_path)
    with serving([completion(EDIT)]) as server:
        assert pgo(*SHORT, cwd=tmp_path, OPENAI_BASE_URL=server.url, OPENAI_API_KEY="k").code == 0
    asked = record(tmp_path)
    written = pgo("recording", "-o", "a.jsonl", cwd=tmp_path)
    assert written.code == 0 and pgo("recording", cwd=tmp_path).out == (tmp_path / "a.jsonl").read_text()

    (tmp_path / ".pgo-agent").rename(tmp_path / "before")
    done = pgo(*SHORT[:-1], "replay:a.jsonl", "--candidates", "3", "--json", cwd=tmp_path)
    assert done.code == 0, done.err
    played = record(tmp_path)
    assert played["candidates"][: len(asked["candidates"])] == asked["candidates"]
    authors = [c["author"] for c in played["candidates"]]
    assert authors[0] == "tiny-1" and all(a.startswith("embedded") for a in authors[1:]) and len(authors) == 3
    assert [e["type"] for e in done.events].count("model.exhausted") == 1
    assert not [e for e in done.events if e["type"] == "note"]


def test_a_damaged_recording_makes_no_run(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "a.jsonl").write_text("{}\n")
    done = pgo(*SHORT[:-1], "replay:a.jsonl", cwd=tmp_path)
    assert done.code == 2 and "a.jsonl, line 1:" in done.err
    with sqlite3.connect(tmp_path / ".pgo-agent" / "pgo.db") as db:
        assert db.execute("SELECT count(*) FROM runs").fetchone() == (0,)


def test_lines_are_json_that_other_tools_read(file: Path) -> None:
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [sorted(line)[0] for line in lines] == [
        "device",
        "completion_tokens",
        "completion_tokens",
        "completion_tokens",
    ]
