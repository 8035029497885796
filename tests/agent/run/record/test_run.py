"""What a run holds as JSON comes back as itself, and what is damaged is said when it is asked for."""

import json
from pathlib import Path

import pytest
from pgo_agent.agent.run.facts import RunFacts
from pgo_agent.agent.run.record import run_summary
from pgo_agent.agent.run.record.baseline import Baseline, BaselinePoint, TimeSource, Unfit
from pgo_agent.agent.run.record.run_summary import (
    CaseRates,
    FailedRun,
    KnownRate,
    MeasuredRun,
    RankedCandidate,
    RankedRun,
    RunSummary,
    SideRate,
)
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.sandbox.build.result import Built, Choice, Failure
from pgo_agent.sandbox.errors import EnvironmentFault
from pgo_agent.sandbox.gate import coverage
from pgo_agent.sandbox.gate.evidence import Evidence
from pgo_agent.sandbox.gate.reason import of_case, plain
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.judge.machine import Environment

from tests.agent.baselines import baseline, point

CASE = "CASES/x"
COVERED = coverage.of(cases=(1, 2))
BUILT = Built(
    "b",
    {"work": {"CASES": {"x": {"flops": 10, "bytes": 4}}}},
    {CASE: (Choice("c", {"BLOCK": 4, "FAST": True}, ("k",), "p"),)},
    {"k": {"name": "_k", "notes": []}},
    {"k": "code"},
    (Failure("build_error", "no", 3, CASE),),
    stages=(
        Evidence("build", None, plain("all of it"), 0.5, {"seconds": {"trace": 0.5}}, COVERED),
        Evidence("inspect", Verdict.REJECTED, of_case("HELD_OUT/y") + plain(" differs"), 0.25),
    ),
    whole=False,
)
MEASURED = point(BUILT, CASE, samples=(1.0, 1.5), finalist=False, check={"admits": {}}, taken_on={"index": "0"})
RATES = CaseRates({"shipped": SideRate(1.0, 2.0, "GB/s")}, (0.9, 1.0, 1.1))
SUMMARIES: list[RunSummary] = [
    FailedRun("it does not compile"),
    MeasuredRun(
        winner=None,
        against={},
        cases={CASE: RATES},
        times={CASE: {"shipped": (1.0, 1.5)}},
        environment=Environment("made up"),
        sides={},
        autotuned={},
        unfit=(Unfit(CASE, "c", "wrong", None),),
        seconds=2.5,
    ),
    RankedRun(
        ranking=(RankedCandidate("c1", "m", "built", None, "no estimate for a rewrite", {}, COVERED),),
        cases={CASE: {"shipped": KnownRate("c", 1.0, TimeSource.ESTIMATE, 2.0, "GB/s")}},
        device="made up",
        varied=(),
        seconds=2.5,
    ),
]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    opened = Store(tmp_path / "w")
    opened.add_run("x-1", Path("x.py"), "d", "pass\n", "h200", RunSettings(), RunFacts())
    return opened


@pytest.mark.parametrize("made", [point(BUILT, CASE), MEASURED])
def test_a_baseline_comes_back_as_it_was(store: Store, made: BaselinePoint) -> None:
    before = baseline(BUILT, [made], unfit=(Unfit(CASE, "c", "wrong", 1.5),), environment=Environment("made up"))
    store.set_baseline("x-1", before)
    assert store.run("x-1").baseline == before


def test_a_configuration_that_nobody_measured_is_written_without_what_a_measurement_says() -> None:
    plain_json, measured_json = point(BUILT, CASE).as_json(), MEASURED.as_json()
    assert measured_json.keys() - plain_json.keys() == {"samples", "finalist", "check", "taken_on"}


def test_a_baseline_with_a_key_that_is_none_is_refused() -> None:
    kept = baseline(BUILT, [MEASURED]).as_json()
    for changed in (kept | {"other": 1}, {k: v for k, v in kept.items() if k != "cases"}):
        with pytest.raises(ValueError, match="is not a Baseline"):
            Baseline.from_json(changed)


def test_a_build_comes_back_as_it_was_with_what_the_stages_said() -> None:
    assert Built.from_json(json.loads(json.dumps(BUILT.as_json()))) == BUILT


@pytest.mark.parametrize("summary", SUMMARIES, ids=lambda s: type(s).__name__)
def test_each_kind_of_summary_comes_back_as_itself(summary: RunSummary) -> None:
    assert run_summary.read(json.dumps(summary.as_json())) == summary


@pytest.mark.parametrize("column", ["baseline", "summary"])
def test_a_damaged_one_is_said_when_it_is_asked_for_and_costs_nothing_else(store: Store, column: str) -> None:
    store.db.execute(f"UPDATE runs SET {column} = '{{}}'")
    run = store.run("x-1")
    assert run.state == "running"
    with pytest.raises(EnvironmentFault, match=f"the {column} of run x-1 is damaged"):
        getattr(run, column)
