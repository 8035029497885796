"""What `evals/scaling.py` makes of runs: which candidates, at what rate, and whether winners agree within the noise."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pgo_agent.agent.run.record.store import Store
from pgo_agent.evals import scaling
from pgo_agent.evals.scaling import Clock, Measured
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.gate.verdict import Verdict

from tests.agent import searching

A, B = [1.10, 1.12, 1.14], [1.13, 1.15, 1.17]
FAR = [1.50, 1.52, 1.54]


def on(gpus: int, winner: str | None, **speedups: list[float]) -> Measured:
    return Measured(gpus, "r", 10.0, 60.0 / gpus, 12, winner, dict(speedups))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    folder = tmp_path_factory.mktemp("prepared") / "w"
    searching.prepare(folder)
    with closing(Store(folder)) as opened:
        yield opened


def test_a_rate_is_of_what_was_judged() -> None:
    assert (on(1, "a", a=A).a_minute, on(4, "a", a=A).a_minute) == (12.0, 48.0)


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (on(4, "a", a=A, b=B), True),
        (on(4, "b", a=A, b=B), True),  # their intervals overlap in both runs
        (on(4, "b", b=B), False),  # a was not accepted there
        (on(4, "c", a=A, c=FAR), False),
        (on(4, None), False),
    ],
)
def test_winners_agree_when_they_are_the_same_as_far_as_the_clock_can_tell(other: Measured, same: bool) -> None:
    assert scaling.agree([on(1, "a", a=A, b=B), other]) is same


def test_phases_are_timed_by_a_runs_events() -> None:
    clock = Clock()
    for doing in ("building the kernel as shipped", "measuring 6 configurations"):
        clock({"type": "phase", "doing": doing})
    clock({"type": "baseline.completed"})
    clock({"type": "candidate.verdict"})  # refused by its build
    clock({"type": "phase", "doing": "judging 1 candidate on the GPU"})
    clock({"type": "candidate.verdict"})
    assert len(clock.verdicts) == 1 and clock.baseline >= 0 and clock.judging >= 0


def test_what_a_gpu_judged_is_judged_again_and_nothing_else(store: Store) -> None:
    ctx = searching.begin(store, "second-2")
    kept = [searching.tried(ctx, verdict, 1.1) for verdict in (Verdict.ACCEPTED, Verdict.SLOWER, Verdict.RACE)]
    for verdict in (Verdict.NO_CHANGE, Verdict.BUILD_ERROR):
        searching.tried(ctx, verdict)
    assert [g["source"] for g in scaling.candidates(store, ctx.run)] == [c.source for c in kept]


def test_a_run_that_judged_nothing_is_refused(store: Store) -> None:
    with pytest.raises(UsageFault, match="judged no candidate"):
        scaling.candidates(store, store.run("first-1"))


def test_without_enough_gpus_it_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert scaling.main(["--store", str(tmp_path), "--counts", "64"]) == 3
    assert "GPUs are visible here" in capsys.readouterr().err
