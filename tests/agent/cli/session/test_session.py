"""The interactive session in real terminals: a person watches, steers, pauses, leaves and comes back."""

import os
import pty
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pgo_agent.agent.cli.session import commands, parse_input
from pgo_agent.agent.cli.session.controller import SessionController
from pgo_agent.agent.run.record.candidate import Candidate
from pgo_agent.agent.run.record.run_summary import FailedRun
from pgo_agent.agent.run.record.store import Store
from pgo_agent.sandbox.errors import UsageFault

from tests.agent.breaking import alive, processes
from tests.agent.command_line import command, pgo, write
from tests.agent.screens import Screen, needs_tmux

SHORT = ("--case", "1m", "--candidates", "3", "--width", "3", "--patience", "9")


def candidates(folder: Path) -> list[Candidate]:
    store = Store(folder / ".pgo-agent", create=False)
    try:
        return store.candidates(store.run("last").id)
    finally:
        store.close()


@pytest.fixture
def editor(tmp_path: Path) -> Iterator[str]:
    """An editor that writes a line into what it is given."""
    script = tmp_path / "edit.sh"
    script.write_text('#!/bin/sh\nsed -i "s/^    z = torch.empty_like(x)$/    z = torch.empty_like(x)  # mine/" "$1"\n')
    script.chmod(script.stat().st_mode | stat.S_IEXEC)
    yield str(script)


# whole sessions -------------------------------------------------------------------------------------------------------


@needs_tmux
@pytest.mark.slow
def test_a_person_watches_vetoes_edits_leaves_and_comes_back(tmp_path: Path, editor: str) -> None:
    write(tmp_path)
    with Screen("session", "add.py", *SHORT, cwd=tmp_path, EDITOR=editor) as screen:
        screen.until(lambda _: "candidate gen by" in screen.text)
        vetoed = candidates(tmp_path)[-1]
        screen.type(f"/veto {vetoed.id[:8]} not today")
        screen.until(f"{vetoed.id[:8]} is vetoed, and will not be judged")
        screen.until(lambda _: f"{vetoed.id[:8]}    1 moves vetoed" in screen.text)
        screen.type("/edit shipped")
        screen.until("is yours, in the next generation")
        screen.press("C-c")
        screen.until("paused; nothing that was recorded is lost")
        screen.until(lambda _: "/resume goes on, /quit leaves" in screen.text)
        screen.press("C-c")
        assert screen.ended() == 130
        assert "Go on with: pgo-agent session add-" in screen.all
    before = {c.id: c.verdict for c in candidates(tmp_path) if c.verdict}
    assert before[vetoed.id] == "vetoed"
    with Screen("session", "last", cwd=tmp_path) as screen:
        screen.until("in generation 2")
        screen.until("complete  /show")
        screen.type("/quit")
        assert screen.ended() == 0
    after = {c.id: c for c in candidates(tmp_path)}
    assert {i: after[i].verdict for i in before} == before
    (mine,) = (c for c in after.values() if c.author == "user")
    assert mine.verdict in ("checked", "no_change") and "# mine" in mine.source and mine.generation == 2


@needs_tmux
@pytest.mark.slow
def test_a_killed_session_takes_the_loop_with_it_and_the_request_it_wrote_holds(tmp_path: Path) -> None:
    write(tmp_path)
    with Screen("session", "add.py", *SHORT, cwd=tmp_path) as screen:
        screen.until("building")
        screen.type("/budget candidates 1")
        screen.until("candidates: 1")
        session, loop = _one(screen, "agent.cli.main session"), _one(screen, "session.worker")
        os.kill(session, signal.SIGKILL)
        end = time.monotonic() + 60
        while alive(loop):
            assert time.monotonic() < end, "the loop outlives its session"
            time.sleep(0.1)
    assert pgo("resume", cwd=tmp_path).code == 0
    assert len(candidates(tmp_path)) == 1


@needs_tmux
@pytest.mark.slow
def test_a_loop_that_dies_is_told_and_goes_on_when_it_is_asked_to(tmp_path: Path) -> None:
    write(tmp_path)
    with Screen("session", "add.py", *SHORT, "--candidates", "1", cwd=tmp_path) as screen:
        screen.until("building")
        os.kill(_one(screen, "session.worker"), signal.SIGKILL)
        screen.until("was ended by signal 9")
        screen.type("/resume")
        screen.until("complete  /show")
        screen.press("C-d")
        assert screen.ended() == 0


@pytest.mark.slow
def test_a_dumb_terminal_gets_lines_and_no_escapes(tmp_path: Path) -> None:
    write(tmp_path)
    ours, theirs = pty.openpty()
    env = os.environ | {"TERM": "dumb"}
    run = subprocess.Popen(
        command("session", "add.py", *SHORT, "--candidates", "1"),
        cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs, env=env, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    said = b""
    try:
        while b"next: pgo-agent show" not in said:
            said += os.read(ours, 4096)
        os.write(ours, b"/status\n/quit\n")
        while run.poll() is None:
            try:
                said += os.read(ours, 4096)
            except OSError:  # the other side is closed
                break
        assert run.wait(30) == 0
    finally:
        run.kill()
        os.close(ours)
    assert b"\x1b" not in said and b"best      nothing is measured without a GPU" in said and b"checked" in said


def _one(screen: Screen, words: str) -> int:
    """The process below a terminal whose command line holds these words."""
    found = [p for p in processes(screen.pid) if p != screen.pid and words in _words(p)]
    assert len(found) == 1, found
    return found[0]


def _words(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
    except OSError:
        return ""


# bad input ------------------------------------------------------------------------------------------------------------


def test_without_a_terminal_it_names_what_needs_none(tmp_path: Path) -> None:
    write(tmp_path, name="my add.py")
    told = {"my add.py": "optimize 'my add.py'", "fa_fwd": "optimize fa_fwd", "last": "resume last"}
    for what, instead in told.items():
        done = pgo("session", what, cwd=tmp_path)
        assert done.code == 2 and done.err.endswith(f"without one: pgo-agent {instead}\n")


@pytest.mark.parametrize(("typed", "instead"), [
    ("/show shipped", "/show alone tells of the run"),
    ("/apply tuned", "/apply alone writes the winner"),
    ("/evidence shipped", "/diff shipped CANDIDATE"),
])  # fmt: skip
def test_a_baseline_where_a_candidate_is_wanted_is_told_what_to_type(store: Store, typed: str, instead: str) -> None:
    asked = parse_input.read(typed)
    assert asked is not None
    with pytest.raises(UsageFault, match="is a baseline and no candidate here") as e:
        commands.do(SessionController(store, "first-1", lambda run: run), asked, lambda question: False)
    assert instead in e.value.hint


def test_where_a_text_that_is_refused_is_kept_can_be_typed_again(store: Store, tmp_path: Path) -> None:
    path = write(tmp_path, ("def kernel(", "def kernel(("), name="my add.py")
    asked = parse_input.read(f"/submit '{path}'")
    assert asked is not None
    with pytest.raises(UsageFault) as e:
        commands.do(SessionController(store, "first-1", lambda run: run), asked, lambda question: False)
    assert e.value.hint.endswith(f"your text is kept: /submit '{path}' shipped")


@needs_tmux
def test_what_is_neither_file_nor_run_is_said_to_be_neither(tmp_path: Path) -> None:
    with Screen("session", "nothing", cwd=tmp_path) as screen:
        assert screen.ended() == 2
        assert "nothing is no file, and no run begins with 'nothing'" in screen.all


@pytest.mark.long
@needs_tmux
def test_a_file_that_is_no_target_ends_the_session_as_it_ends_optimize(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("x = 1\n")
    with Screen("session", "bad.py", cwd=tmp_path) as screen:
        assert screen.ended() == 2
        told = pgo("optimize", "bad.py", cwd=tmp_path).err.splitlines()[0]
        assert told in screen.all


@pytest.mark.long
@needs_tmux
def test_a_run_that_another_process_holds_is_refused_with_its_holder(tmp_path: Path, whole_add: Path) -> None:
    store = Store(whole_add)
    run = store.run("last").id
    try:
        with store.active(run), Screen("session", run, "--store", whole_add, cwd=tmp_path) as screen:
            assert screen.ended() == 3
            assert f"run {run}, process {os.getpid()}" in screen.all
    finally:
        store.close()


@pytest.fixture
def whole_add(tmp_path: Path, prepared: Path) -> Path:
    """A workspace with a run that was left in the middle."""
    folder = tmp_path / "held"
    shutil.copytree(prepared, folder, symlinks=True)
    store = Store(folder)
    run = store.run("last")
    store.set_settings(run.id, replace(run.settings, sandbox="auto", judge="cpu", python=sys.executable), run.facts)
    store.close()
    return folder


@needs_tmux
def test_a_terminal_that_is_too_small_says_what_is_needed_and_gets_lines(tmp_path: Path, whole_add: Path) -> None:
    store = Store(whole_add)
    run = store.run("last")
    store.set_state(run.id, "done", FailedRun("x"))
    store.close()
    with Screen("session", run.id, "--store", whole_add, cwd=tmp_path, size=(50, 10)) as screen:
        screen.until("needs a terminal of 60 x 16, and this one is 50 x")
        screen.until("complete")
        assert "budget " not in screen.text
        screen.type("/nonsense")
        screen.until("there is no command /nonsense")
        screen.type("/guide faster")
        screen.until("takes no more requests")
        screen.press("C-c")
        assert screen.ended() == 0
