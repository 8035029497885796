"""Processes killed at random moments: the run comes to the record of an undisturbed one, and judges nothing twice."""

import os
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.agent import breaking
from tests.agent.breaking import Broken, Whole
from tests.agent.command_line import pgo, write

pytestmark = pytest.mark.long  # whole runs, killed and resumed

SAMPLE = len(breaking.KINDS)  # kills of one run in `make test`
RUNS = 4  # in which `make test` kills each kind of process at least once
A_RUN = 20  # kills of one run, when there are many


def killed(folder: Path, args: tuple[str, ...], kills: int, seed: int, hit: Counter[str]) -> Broken:
    """A run through so many kills: of the kinds of process that were `hit` least, to which they are added."""
    folder.mkdir()
    write(folder, alone=True)
    run = Broken(folder, args, hit)
    run.through(kills, random.Random(seed))
    breaking.judged_once(run.events, folder)
    return run


def test_killing_any_process_at_any_moment_changes_nothing_of_the_record(whole: Whole, tmp_path: Path) -> None:
    hit = Counter[str]()
    for seed in range(RUNS):  # a run may end before the last kind of process was met in it
        run = killed(tmp_path / str(seed), breaking.SHORT, SAMPLE, seed, hit)
        assert breaking.record(run.folder) == whole.record
        if set(hit) == set(breaking.KINDS):
            return
    pytest.fail(f"in {RUNS} runs not every kind of process was killed: {hit}")


@pytest.mark.slow
@pytest.mark.skipif("KILLS" not in os.environ, reason="takes a quarter of an hour: `make kills`")
def test_a_hundred_kills_change_nothing_of_the_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, alone=True)
    done = pgo(*breaking.LONG, cwd=tmp_path)
    assert done.code == 0, done.err
    whole = breaking.record(tmp_path)
    wanted, hit, sessions, gave_up, runs = int(os.environ["KILLS"]), Counter[str](), 0, 0, 0
    while hit.total() < wanted:
        run = killed(tmp_path / str(runs), breaking.LONG, min(A_RUN, wanted - hit.total()), runs, hit)
        assert breaking.record(run.folder) == whole
        sessions, gave_up, runs = sessions + run.sessions, gave_up + run.gave_up, runs + 1
        with capsys.disabled():
            print(f"\n{hit.total()} kills in {runs} runs and {sessions} sessions ({gave_up} gave up): {dict(hit)}")
    assert set(hit) == set(breaking.KINDS)
