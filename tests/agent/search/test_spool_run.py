"""Whole runs whose GPU is elsewhere: they wait or are suspended, ask everything once, and lose nothing.

The other side is `made_up.py`: the real worker, with a judge that reads every bundle and makes its times up.
"""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pgo_agent.sandbox.judge.spool.folder import Folder

from tests.agent import made_up
from tests.agent.breaking import database
from tests.agent.command_line import ADD, Begun, Done, begin, pgo, write

WIDE = ("optimize", "add.py", "--case", "1m", "--candidates", "3", "--width", "4", "--patience", "1")
ELSEWHERE = ("--judge", "spool:box", "--json")
ENDED = ("accepted", "slower")


@dataclass(frozen=True)
class Run:
    """A run in `folder` that asks in `folder`/box."""

    folder: Path

    @property
    def box(self) -> Path:
        return self.folder / "box"

    def answered(self, faster: float = 1.2) -> None:
        """What is asked is answered."""
        arguments = (self.box, self.folder / "add.py", str(faster), "--once")
        done = pgo(*arguments, cwd=self.folder, program=made_up.__name__)
        assert done.code == 0, done.err

    def resumed(self, *args: str) -> Done:
        return pgo("resume", "--json", *args, cwd=self.folder)

    def asked(self) -> list[str]:
        """The commands that were answered, in their order."""
        told = self.box.with_name("box.asked")
        return [json.loads(line)["do"] for line in told.read_text().splitlines()] if told.exists() else []

    def open(self) -> Counter[str]:
        """The commands that have no answer yet."""
        answered = {p.stem for p in (self.box / "answers").iterdir()}
        waiting = [p for p in (self.box / "requests").iterdir() if p.stem.partition("-")[2] not in answered]
        return Counter(json.loads(p.read_bytes())["do"] for p in waiting)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        db = database(self.folder)
        try:
            return [tuple(r) for r in db.execute(sql)]
        finally:
            db.close()

    def by_hand(self, done: Done, faster: float = 1.2) -> tuple[Done, list[Counter[str]]]:
        """Answered and resumed until it ends; and what was open each time."""
        rounds = []
        while done.code == 5:
            rounds.append(self.open())
            self.answered(faster)
            done = self.resumed("--no-wait")
        return done, rounds


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Done]:
    """A run that asked for its baseline and was told not to wait. Made once."""
    folder = tmp_path_factory.mktemp("kept") / "run"
    folder.mkdir()
    write(folder)
    done = pgo(*WIDE, *ELSEWHERE, "--no-wait", cwd=folder)
    shutil.copytree(folder, folder.with_name("copy"), symlinks=True)
    return Run(folder), done


def restored(run: Run) -> Run:
    """As it was when it was suspended, in the same place: the record names the folder."""
    shutil.rmtree(run.folder)
    shutil.copytree(run.folder.with_name("copy"), run.folder, symlinks=True)
    return run


@pytest.fixture
def suspended(kept: tuple[Run, Done]) -> Iterator[Run]:
    run, _ = kept
    yield restored(run)


def test_without_waiting_a_run_ends_with_5_and_says_what_answers_and_how_to_go_on(kept: tuple[Run, Done]) -> None:
    run, done = kept
    last = done.events[-1]
    assert (done.code, last["type"], run.open()) == (5, "run.waiting", Counter(hello=1, sweep=1))
    assert last["how"] == f"python -m pgo_agent.sandbox.judge --spool {run.box} --target add.py"
    assert run.rows("SELECT state FROM runs") == [("waiting",)]


def test_nothing_of_the_targets_text_is_in_the_folder(kept: tuple[Run, Done]) -> None:
    run, _ = kept
    files = [p.read_bytes() for p in run.box.rglob("*") if p.is_file()]
    said = [line.strip().encode() for line in ADD.splitlines() if len(line.strip()) > 12]
    assert files and said
    assert [line for line in said for data in files if line in data] == []
    assert str(run.folder).encode() not in b"".join(files)


def test_a_folder_that_is_made_anew_is_its_owners_alone(kept: tuple[Run, Done]) -> None:
    run, _ = kept
    assert run.box.stat().st_mode & 0o777 == 0o700


@pytest.fixture(scope="module")
def finished(kept: tuple[Run, Done], tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Done, list[Counter[str]]]:
    """The run by hand to its end; a copy of what it left. Made once."""
    run, first = kept
    done, rounds = restored(run).by_hand(first)  # workers take tests in any order: another may have left its marks
    copy = tmp_path_factory.mktemp("finished") / "run"
    shutil.copytree(run.folder, copy, symlinks=True)
    return Run(copy), done, rounds


@pytest.mark.long
def test_a_run_by_hand_asks_a_whole_generation_at_a_time_and_everything_once(
    finished: tuple[Run, Done, list[Counter[str]]],
) -> None:
    run, done, rounds = finished
    assert done.code == 0, done.err
    judged = sum(v in ENDED for (v,) in run.rows("SELECT verdict FROM candidates"))
    assert judged >= 2
    one_at_a_time = [Counter(judge=judged), Counter(race=judged, confirm=judged)]
    shown = Counter(timeline=2, peaks=1)  # of the winner, for the report: all candidates were proposed
    assert rounds == [Counter(hello=1, sweep=1), *one_at_a_time, shown, Counter(final=1)]
    assert Counter(run.asked()) == sum(rounds, Counter())
    assert done.events[-1]["summary"]["environment"]["torch"] == "made up"


def needed(run: Run) -> list[str]:
    """What a run asked, but for the peaks: they say nothing of a kernel that nobody could record."""
    return [do for do in run.asked() if do != "peaks"]


@pytest.mark.long
def test_the_gpu_seconds_of_an_answer_are_the_runs_once_however_often_it_is_resumed(
    finished: tuple[Run, Done, list[Counter[str]]],
) -> None:
    run, _, _ = finished
    ((count, seconds),) = run.rows("SELECT count(*), sum(seconds) FROM answers")
    assert (count, seconds) == (len(needed(run)), len(needed(run)) * made_up.SECONDS)


@pytest.mark.long
def test_every_candidate_of_a_generation_is_measured_against_what_it_began_with(
    finished: tuple[Run, Done, list[Counter[str]]],
) -> None:
    run, _, _ = finished
    assert run.rows("SELECT DISTINCT against FROM candidates WHERE verdict = 'accepted'") == [("shipped",)]


@pytest.mark.long
def test_a_race_and_a_confirmation_get_processes_that_answered_nothing_before(
    finished: tuple[Run, Done, list[Counter[str]]],
) -> None:
    run, _, _ = finished
    told = [json.loads(line) for line in run.box.with_name("box.asked").read_text().splitlines()]
    alone = [t for t in told if t["do"] in ("race", "confirm")]
    used = Counter((t["worker"], t["process"]) for t in told)
    assert alone and all(used[t["worker"], t["process"]] == 1 for t in alone)


def waiting(run: Run, *args: str) -> Begun:
    """A process that goes on with the run, and waits by now."""
    process = begin(*args, "--json", cwd=run.folder)
    assert any(json.loads(line)["type"] == "judge.waiting" for line in process.stdout)
    return process


def test_an_interrupted_wait_costs_no_minutes_and_asks_nothing_new(suspended: Run) -> None:
    before = suspended.open()
    process = waiting(suspended, "resume")
    spent = suspended.rows("SELECT seconds FROM runs")[0][0]
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "pgo-agent resume" in err
    assert suspended.rows("SELECT seconds FROM runs")[0][0] - spent < 0.75
    assert suspended.open() == before


@pytest.mark.slow
def test_a_run_that_is_killed_while_it_waits_finds_its_answers(suspended: Run) -> None:
    process = waiting(suspended, "resume")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    suspended.answered()
    assert suspended.resumed("--no-wait").code == 5
    assert Counter(suspended.asked()) == Counter(hello=1, sweep=1) and set(suspended.open()) == {"judge"}


@pytest.mark.slow
def test_a_run_that_waits_comes_to_the_winner_of_one_by_hand_and_proves_no_other(
    finished: tuple[Run, Done, list[Counter[str]]], tmp_path: Path
) -> None:
    other = Run(tmp_path)
    write(tmp_path)
    with made_up.answering(tmp_path):
        done = pgo(*WIDE, *ELSEWHERE, cwd=tmp_path)
    assert done.code == 0, done.err
    told = "SELECT id, speedup, against FROM candidates ORDER BY generation, position"
    won = "SELECT json_extract(summary, '$.winner') FROM runs"
    assert other.rows(told) == finished[0].rows(told) and other.rows(won) == finished[0].rows(won) != [(None,)]
    assert [other.asked().count(c) for c in ("look", "judge", "confirm")] == [3, 1, 1]
    seconds = [e["gpu_seconds"] for e in done.events if e["type"] == "run.completed"]
    assert seconds == [len(needed(other)) * made_up.SECONDS]


@pytest.mark.slow
def test_a_folder_copied_there_and_back_by_hand_is_gone_on_with(suspended: Run, tmp_path: Path) -> None:
    there = Run(tmp_path)
    write(tmp_path)
    shutil.copytree(suspended.box, there.box)
    there.answered()
    for path in (there.box / "answers").iterdir():  # on the way back each comes in part first
        (suspended.box / "answers" / path.name).write_bytes(path.read_bytes()[:100])
    assert suspended.resumed("--no-wait").events[-1]["why"] == "is not there, and 1 more"
    shutil.copytree(there.box / "answers", suspended.box / "answers", dirs_exist_ok=True)
    assert suspended.resumed("--no-wait").code == 5
    assert set(suspended.open()) == {"judge"}


def test_an_answer_of_no_known_form_ends_the_command_and_not_the_run(suspended: Run) -> None:
    suspended.answered()
    (path,) = (p for p in (suspended.box / "answers").iterdir() if b"entries" in p.read_bytes())
    body = path.read_bytes().partition(b"\n")[2].replace(b'"problem": ""', b'"problem": 7')
    Folder(suspended.box).give(path.stem, body)
    done = suspended.resumed("--no-wait")
    assert done.code == 3 and "is no answer: entries" in done.err and "remove it" in done.err
    assert suspended.rows("SELECT state FROM runs") == [("interrupted",)]


@pytest.mark.slow
def test_the_wrong_machine_is_an_error_that_names_the_device_and_the_right_one_goes_on(suspended: Run) -> None:
    subject = str(suspended.folder / "add.py")
    worker = ["-m", "pgo_agent.sandbox.judge", "--spool", str(suspended.box), "--target", subject]
    subprocess.run([sys.executable, *worker, "--gpus", "none", "--once"], check=True, capture_output=True)
    done = suspended.resumed("--no-wait")
    assert done.code == 3 and "has no GPU, and the run compiles for NVIDIA H200" in done.err
    assert suspended.rows("SELECT state FROM runs") == [("interrupted",)]
    done = suspended.resumed("--no-wait")  # the refusal of the sweep is told by itself
    assert done.code == 3 and "refused" in done.err
    suspended.answered()
    assert suspended.resumed("--no-wait").code == 5
    assert set(suspended.open()) == {"judge"}


@pytest.mark.parametrize(
    ("judge", "said"),
    [("somewhere", "unknown judge"), ("spool:", "names no folder"), ("spool:add.py", "is no folder")],
)
def test_a_judge_that_is_none_is_refused_before_anything_is_built(tmp_path: Path, judge: str, said: str) -> None:
    write(tmp_path)
    done = pgo("optimize", "add.py", "--judge", judge, cwd=tmp_path)
    assert done.code == 2 and said in done.err and "building" not in done.err
