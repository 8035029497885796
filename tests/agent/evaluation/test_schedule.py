"""What of a generation is measured and proved: what promises most, until one is accepted. Runs on made-up GPUs.

Two candidates are faster than the incumbent; how much follows from the hashes of their plans (`made_up_process.py`).
"""

from contextlib import closing
from pathlib import Path

import pytest
from pgo_agent.agent.run.record import user_requests
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.record.user_requests import Kind

from tests.agent.command_line import Done, pgo
from tests.agent.many_runs import OPTIMIZE as FOUR
from tests.agent.many_runs import RESUME, Run, on

pytestmark = pytest.mark.long  # whole runs
OPTIMIZE = (*FOUR, "--candidates", "2")
RACING = "racing and confirming"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Done]:
    """A run that nobody disturbed."""
    run = on(tmp_path_factory.mktemp("whole") / "run", 1)
    return run, run.command(*OPTIMIZE)


def verdicts(run: Run) -> dict[str, tuple[str, str, float]]:
    """Verdict, reason and speedup of what was measured, the fastest first."""
    told = [t for t in run.told() if t[6]]
    return {t[0]: (t[3], t[5], t[6]) for t in sorted(told, key=lambda t: -t[6])}


def asked(run: Run, *commands: str) -> list[str]:
    """The bundles that these commands were about, in order."""
    return [a["candidate"] for a in run.machine.asked() if a["do"] in commands]


def test_what_promises_most_is_measured_and_proved_alone(whole: tuple[Run, Done]) -> None:
    run, done = whole
    assert done.code == 0, done.err
    (fast, (verdict, _, x)), (_, (other, reason, y)) = verdicts(run).items()
    assert verdict == "accepted" and x > y > 1
    assert (other, reason) == ("undecided", f"{y:.3f}x at a first look; not measured: {fast[:8]} was faster")
    assert len(asked(run, "look")) == 2 and asked(run, "judge", "confirm") == [run.bundles()[fast]] * 2


def test_what_promises_more_than_the_fastest_was_measured_at_is_measured_too(
    whole: tuple[Run, Done], tmp_path: Path
) -> None:
    first, _ = whole
    x, y = (v[2] for v in verdicts(first).values())
    run = on(tmp_path / "run", 3, first.folder, flatters=x - y + 0.01)
    assert run.command(*OPTIMIZE).code == 0
    (fast, (verdict, _, _)), (_, (other, reason, measured)) = verdicts(run).items()
    assert verdict == "accepted" and (other, measured) == ("undecided", y)
    assert reason.endswith(f"neither raced nor confirmed: {fast[:8]} was faster")
    assert len(asked(run, "judge")) == 2 and asked(run, "confirm") == [run.bundles()[fast]]


def test_where_the_fastest_is_not_confirmed_the_next_one_is_measured_and_proved(
    whole: tuple[Run, Done], tmp_path: Path
) -> None:
    first, _ = whole
    x, y = (v[2] for v in verdicts(first).values())
    run = on(tmp_path / "run", 3, first.folder, doubts=(x + y) / 2)
    assert run.command(*OPTIMIZE).code == 0
    found = {t[0]: t for t in run.told()}
    fast, slower = (found[name] for name in verdicts(first))
    assert fast[3] == "undecided" and fast[5] == "not confirmed: the samples do not tell"
    assert slower[3] == "accepted" and len(asked(run, "judge")) == len(asked(run, "confirm")) == 2


@pytest.mark.slow
def test_a_run_that_is_killed_before_a_proof_measures_nothing_again(whole: tuple[Run, Done], tmp_path: Path) -> None:
    first, _ = whole
    run = on(tmp_path / "run", 2, first.folder, seconds=0.3)
    run.killed_when("phase", 1, *OPTIMIZE, doing=RACING)
    before = len(asked(run, "look", "judge"))
    assert before and [t[3] for t in run.told()].count(None) == 2
    shown = " ".join(pgo("show", cwd=run.folder).out.split())
    assert " looked at " in shown and " measured " in shown
    assert run.command(*RESUME).code == 0
    assert len(asked(run, "look", "judge")) == before and run.told() == first.told()


@pytest.mark.slow
def test_what_waits_for_a_verdict_can_be_vetoed(whole: tuple[Run, Done], tmp_path: Path) -> None:
    first, _ = whole
    x, y = (v[2] for v in verdicts(first).values())
    run, (fast, slower) = on(tmp_path / "run", 1, first.folder, seconds=0.3, doubts=(x + y) / 2), verdicts(first)
    for e in run.events(*OPTIMIZE):
        if e["type"] == "phase" and e["doing"].startswith(RACING):
            assert fast[:8] in e["doing"]  # the other one would be next
            _veto(run, e["run"], slower)
    found = {t[0]: t[3] for t in run.told()}
    assert (found[fast], found[slower]) == ("undecided", "vetoed") and len(asked(run, "confirm")) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flatters", "seconds", "told"),
    [(0.0, "6.5", "at a first look; not measured"), (0.5, "7.5", "neither raced nor confirmed")],
)
def test_when_the_time_is_over_one_proof_is_begun_and_no_other(
    whole: tuple[Run, Done], tmp_path: Path, flatters: float, seconds: str, told: str
) -> None:
    first, _ = whole
    x, y = (v[2] for v in verdicts(first).values())
    run = on(tmp_path / "run", 1, first.folder, seconds=1.0, doubts=(x + y) / 2, flatters=flatters)
    run.command(*OPTIMIZE, "--gpu-seconds", seconds)  # four commands are the baseline, two the looks
    found = {t[0]: t for t in run.told()}
    fast, slower = (found[name] for name in verdicts(first))
    assert fast[3] == "undecided" and fast[5].startswith("not confirmed")
    assert slower[3] == "undecided" and slower[5].endswith(f"{told}: the time was over")
    assert len(asked(run, "confirm")) == 1


@pytest.mark.slow
def test_a_run_that_is_killed_after_the_proof_for_which_there_was_time_begins_no_other(
    whole: tuple[Run, Done], tmp_path: Path
) -> None:
    first, _ = whole
    x, y = (v[2] for v in verdicts(first).values())
    run = on(tmp_path / "run", 1, first.folder, seconds=1.0, doubts=(x + y) / 2, flatters=0.5)
    run.killed_when("candidate.verdict", 1, *OPTIMIZE, "--gpu-seconds", "7.5", verdict="undecided")
    run.command(*RESUME)
    assert len(asked(run, "confirm")) == 1


@pytest.mark.slow
def test_what_promised_more_when_the_time_was_over_is_not_said_to_be_slower(
    whole: tuple[Run, Done], tmp_path: Path
) -> None:
    first, _ = whole
    run = on(tmp_path / "run", 1, first.folder, seconds=1.0, flatters=0.5)
    run.command(*OPTIMIZE, "--gpu-seconds", "6.5")  # over when one of the two is measured
    found = {t[0]: t for t in run.told()}
    fast, slower = (found[name] for name in verdicts(first))
    assert fast[3] == "accepted" and slower[5].endswith("at a first look; not measured: the time was over")


def _veto(run: Run, name: str, candidate: str) -> None:
    with closing(Store(run.folder / ".pgo-agent")) as store:
        user_requests.add(store, name, Kind.VETO, {"candidate": candidate, "why": "no need"})
