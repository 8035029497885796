"""Whole runs whose model is whoever answers files: they wait or are suspended, and lose and repeat nothing."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.agent import answering
from tests.agent.breaking import database
from tests.agent.command_line import Done, command, pgo, write
from tests.agent.llm.models.test_model_run import EDIT
from tests.agent.llm.models.test_relay import prompt_of

ASK = ("optimize", "add.py", "--case", "1m", "--candidates", "1", "--width", "1", "--model", "relay:inbox")


@dataclass(frozen=True)
class Suspended:
    """A run that asked and was told not to wait."""

    folder: Path
    done: Done

    @property
    def requests(self) -> list[Path]:
        return sorted((self.folder / "inbox").glob("*-request.md"))

    @property
    def reply(self) -> Path:
        (request,) = self.requests
        return request.with_name(request.name.replace("request", "reply"))

    def resumed(self, *args: str, **env: str) -> Done:
        return pgo("resume", "--json", *args, cwd=self.folder, **env)

    def waiting(self) -> "subprocess.Popen[str]":
        """A process that goes on with the run, and waits by now."""
        process = subprocess.Popen(
            command("resume", "--json"),
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # jobs of a shell's background ignore it
        )
        until(process, "model.waiting")
        return process

    def before_the_generation(self) -> None:
        """Takes back what the record got after the reply, as a kill a moment earlier would have left it."""
        db = database(self.folder)
        with db:
            db.execute("DELETE FROM candidates")
            db.execute("DELETE FROM generations")
        db.close()

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        db = database(self.folder)
        try:
            return [tuple(r) for r in db.execute(sql)]
        finally:
            db.close()


def until(process: "subprocess.Popen[str]", kind: str) -> None:
    assert process.stdout is not None
    assert any(json.loads(line)["type"] == kind for line in process.stdout)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Suspended:
    """Made once: its baseline takes longest."""
    folder = tmp_path_factory.mktemp("kept") / "run"
    folder.mkdir()
    write(folder)
    done = pgo(*ASK, "--no-wait", cwd=folder)
    shutil.copytree(folder, folder.with_name("copy"), symlinks=True)
    return Suspended(folder, done)


@pytest.fixture
def suspended(kept: Suspended) -> Iterator[Suspended]:
    """As it was when it was suspended, in the same place: the record names the folder."""
    shutil.rmtree(kept.folder)
    shutil.copytree(kept.folder.with_name("copy"), kept.folder, symlinks=True)
    yield kept


def test_without_waiting_a_run_ends_with_5_and_says_what_to_answer_and_how_to_go_on(suspended: Suspended) -> None:
    done = suspended.done
    (request,) = suspended.requests
    assert done.code == 5
    assert str(request) in done.err and f"{suspended.reply} is not there" in done.err
    assert f"pgo-agent resume {json.loads(pgo('runs', '--json', cwd=suspended.folder).out)[0]['run']}" in done.err
    assert "def kernel(x, y):" in prompt_of(request.read_text()) and "def reference" not in request.read_text()


def test_a_suspended_run_is_shown_as_waiting(suspended: Suspended) -> None:
    assert suspended.rows("SELECT state FROM runs") == [("waiting",)]
    assert str(suspended.folder / "inbox") in pgo("show", cwd=suspended.folder).out


def test_without_a_reply_it_is_suspended_again_and_asks_nothing_new(suspended: Suspended) -> None:
    done = suspended.resumed("--no-wait")
    assert (done.code, done.events[-1]["type"], done.events[-1]["why"]) == (5, "run.waiting", "is not there")
    assert len(suspended.requests) == 1


@pytest.mark.long
def test_a_reply_that_is_dropped_in_is_judged_and_recorded_with_who_wrote_it(suspended: Suspended) -> None:
    suspended.reply.write_text(f"---\nmodel: a person\ntokens: 12 3\n---\n{EDIT}")
    done = suspended.resumed("--no-wait")
    assert done.code == 0, done.err
    assert suspended.rows("SELECT author, verdict FROM candidates") == [("a person", "checked")]
    assert suspended.rows("SELECT reply, prompt_tokens, completion_tokens FROM calls") == [(EDIT, 12, 3)]
    assert suspended.rows("SELECT state FROM runs") == [("done",)]


@pytest.mark.slow
def test_nobody_signs_with_the_name_of_what_is_trusted(suspended: Suspended) -> None:
    suspended.reply.write_text(f"---\nmodel: embedded\n---\n{EDIT}")
    assert suspended.resumed().code == 0
    assert suspended.rows("SELECT author FROM candidates") == [("'embedded'",)]


def test_a_link_in_place_of_the_reply_ends_the_command_and_not_the_run(suspended: Suspended) -> None:
    (suspended.folder / "secret").write_text(EDIT)
    suspended.reply.symlink_to("../secret")
    done = suspended.resumed()
    assert done.code == 3 and "is a link: none is followed" in done.err
    assert suspended.rows("SELECT state FROM runs") == [("interrupted",)]


@pytest.mark.slow
def test_what_is_useless_is_said_and_the_embedded_moves_go_on(suspended: Suspended) -> None:
    suspended.reply.write_bytes(b"\xff\x00" * 150_000)
    done = suspended.resumed()
    told = {e["type"]: e for e in done.events}
    assert done.code == 0 and "is not UTF-8 (byte 1)" in told["note"]["text"]
    assert "no code found" in told["model.replied"]["remark"]
    assert suspended.rows("SELECT author FROM candidates") == [("embedded",)]


@pytest.mark.slow
def test_an_interrupted_wait_costs_no_minutes_and_the_run_goes_on(suspended: Suspended) -> None:
    waiting = suspended.waiting()
    before = suspended.rows("SELECT seconds FROM runs")[0][0]
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.wait(4)
    waiting.send_signal(signal.SIGINT)
    _, err = waiting.communicate(timeout=60)
    assert waiting.returncode == 130 and "pgo-agent resume" in err
    assert suspended.rows("SELECT seconds FROM runs")[0][0] - before < 2
    assert suspended.rows("SELECT state FROM runs") == [("interrupted",)]


@pytest.mark.slow
def test_a_run_that_is_killed_while_it_waits_finds_the_reply_to_its_one_request(suspended: Suspended) -> None:
    waiting = suspended.waiting()
    waiting.kill()
    waiting.communicate()
    suspended.reply.write_text(EDIT)
    assert suspended.resumed().code == 0
    assert len(suspended.requests) == 1 and suspended.rows("SELECT author FROM candidates") == [("relay",)]


@pytest.mark.slow
@pytest.mark.parametrize("said", [EDIT, "I would rather talk about it."])
def test_a_run_that_is_killed_right_after_a_reply_does_not_ask_again(suspended: Suspended, said: str) -> None:
    waiting = suspended.waiting()
    suspended.reply.write_text(said)
    until(waiting, "model.replied")
    waiting.kill()
    waiting.communicate()
    suspended.before_the_generation()
    assert suspended.resumed("--no-wait").code == 0
    assert len(suspended.requests) == 1 and suspended.rows("SELECT reply FROM calls") == [(said,)]


@pytest.mark.slow
def test_an_agent_in_another_process_answers_whenever_it_is_asked_by_a_run_that_waits(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "inbox").mkdir()
    (tmp_path / "said.md").write_text(f"---\nmodel: agent-9\n---\n{EDIT}")
    with subprocess.Popen(
        [sys.executable, answering.__file__, "inbox", "renamed", "said.md"], cwd=tmp_path, env=os.environ
    ) as agent:
        done = pgo(*ASK, "--candidates", "3", "--json", cwd=tmp_path)
        agent.kill()
    assert done.code == 0, done.err
    verdicts = [e for e in done.events if e["type"] == "candidate.verdict"]
    assert verdicts[0]["verdict"] == "checked"
    assert len(list((tmp_path / "inbox").glob("*-request.md"))) == 2
    shown = pgo("show", "last", verdicts[0]["candidate"], cwd=tmp_path)
    assert "by agent-9: The block is too small for this GPU." in shown.out
