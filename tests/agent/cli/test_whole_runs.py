"""Whole runs without a GPU: what they tell, and that an interrupted one loses nothing and repeats nothing."""

import json
import re
import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.agent.breaking import Whole, record
from tests.agent.command_line import Begun, begin, pgo, write
from tests.sandbox.judge.test_gpu_judge import wait_for

SHORT = ("optimize", "add.py", "--case", "1m", "--candidates", "2", "--width", "1")


def test_events_tell_the_whole_run_in_order(whole: Whole) -> None:
    events = [json.loads(line) for line in (whole.folder / "out.jsonl").read_text().splitlines()]
    kinds = [e["type"] for e in events]
    assert kinds[0] == "run.started" and kinds[-1] == "run.completed"
    assert kinds.count("candidate.proposed") == kinds.count("candidate.verdict") == 2
    assert kinds.count("generation.completed") == 2


def test_nothing_is_called_measured_or_accepted_without_a_gpu(whole: Whole) -> None:
    shown = json.loads(pgo("show", "--json", cwd=whole.folder).out)
    assert {v["verdict"] for v in shown["verdicts"]} <= {"checked", "no_change"}
    assert all(v["speedup"] is None for v in shown["verdicts"])
    assert {p["how"] for p in shown["baseline"]["points"]} <= {"recorded", "estimate"}


@pytest.mark.slow
def test_the_outcome_goes_to_stdout_and_progress_to_stderr(tmp_path: Path) -> None:
    write(tmp_path)
    done = pgo(*SHORT, cwd=tmp_path, NO_COLOR="1", TERM="dumb")
    assert done.code == 0 and "\x1b[" not in done.out + done.err
    assert "Best known configuration" in done.out and "Best known configuration" not in done.err
    assert "launch grid" in done.err and "judging" not in done.out.replace("judges", "")


def test_a_candidate_is_shown_with_its_diff_and_builds(whole: Whole) -> None:
    first = json.loads(pgo("show", "--json", cwd=whole.folder).out)["verdicts"][0]["id"]
    done = pgo("show", "last", first[:6], cwd=whole.folder)
    assert done.code == 0 and "+++ candidate" in done.out and "registers" in done.out
    assert pgo("show", "last", first[:6], "--source", cwd=whole.folder).out.startswith('"""A target small enough')


def test_a_spent_budget_with_nothing_judged_says_so(tmp_path: Path) -> None:
    write(tmp_path)
    done = pgo("optimize", "add.py", "--case", "1m", "--minutes", "0", cwd=tmp_path)
    assert done.code == 4 and "more --minutes" in done.out


@pytest.mark.slow
def test_without_a_sandbox_the_users_own_file_runs_with_a_warning(tmp_path: Path) -> None:
    write(tmp_path)
    done = pgo(*SHORT, "--sandbox", "none", cwd=tmp_path)
    assert done.code == 0 and "no sandbox works on this machine" in " ".join(done.err.split())


def test_two_runs_in_one_workspace_do_not_mix(tmp_path: Path) -> None:
    write(tmp_path)
    first = begin(*SHORT, "--json", cwd=tmp_path)
    try:
        run = json.loads(first.stdout.readline())["run"]
        second = pgo(*SHORT, cwd=tmp_path)
        assert second.code == 3 and f"run {run}" in second.err and "--store" in second.err
    finally:
        first.send_signal(signal.SIGKILL)
        first.communicate()


ANOTHER = re.compile(r"thread (?!Main)\w+")


@dataclass(frozen=True)
class GoneOn:
    """A run that was interrupted, and its second session, which was asked where its threads stand."""

    folder: Path
    begun: str  # what it does at last when it is interrupted
    code: int
    resumed: int  # how that ended
    said: list[str]


def _ask(run: Begun, over: threading.Event) -> None:
    """Ask where its threads stand, again and again: most of them live for a moment."""
    while not over.wait(0.1):
        with suppress(ProcessLookupError):
            run.send_signal(signal.SIGUSR1)


@pytest.fixture(scope="module")
def gone_on(tmp_path_factory: pytest.TempPathFactory) -> GoneOn:
    folder = tmp_path_factory.mktemp("interrupted")
    write(folder)
    run = begin(*SHORT, cwd=folder)
    begun = [next(run.stderr) for _ in range(3)]  # there is a run, and it builds
    time.sleep(0.5)
    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=10)  # what is being built then is waited for by nobody
    resume = err.strip().splitlines()[-1].split("pgo-agent ")[1].split()
    again, said, over = begin(*resume, cwd=folder), list[str](), threading.Event()
    said.append(next(again.stderr))  # it listens to signals by now
    asking = threading.Thread(target=_ask, args=(again, over))
    asking.start()
    for line in again.stderr:
        said.append(line)
        if ANOTHER.match(line):
            over.set()
    over.set()
    asking.join()
    again.communicate()
    return GoneOn(folder, begun[2], run.returncode, again.returncode, said)


def test_ctrl_c_names_the_command_that_goes_on_and_it_does(gone_on: GoneOn, whole: Whole) -> None:
    assert "building the kernel as shipped" in gone_on.begun
    assert (gone_on.code, gone_on.resumed) == (130, 0)
    assert record(gone_on.folder) == whole.record


def test_a_run_says_where_its_threads_stand_and_goes_on(gone_on: GoneOn) -> None:
    said = gone_on.said
    assert "thread MainThread:\n" in said and any(map(ANOTHER.match, said))
    assert any("judging" in line for line in said)


def test_a_complete_run_is_not_run_again(whole: Whole) -> None:
    done = pgo("resume", cwd=whole.folder)
    assert done.code == 2 and "is complete" in done.err


def test_ctrl_c_ends_a_profile_at_once(tmp_path: Path) -> None:
    write(tmp_path, alone=True)  # with builds of other tests it may have ended by then
    run = begin("profile", "add.py", cwd=tmp_path)
    assert wait_for((tmp_path / ".pgo-agent" / "pgo.db").exists, 30)
    time.sleep(0.5)  # it builds
    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=10)
    assert run.returncode == 130 and "interrupted; nothing is lost" in err
