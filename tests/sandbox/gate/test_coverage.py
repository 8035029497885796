"""Nothing unchecked passes: evidence and verdicts that covered nothing are less than they claim, however made."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgo_agent.sandbox.gate import coverage
from pgo_agent.sandbox.gate.coverage import NOTHING, Coverage
from pgo_agent.sandbox.gate.evidence import Evidence
from pgo_agent.sandbox.gate.reason import plain
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict

COUNTS = st.dictionaries(
    st.sampled_from(["cases", "kernels", "loop iterations"]), st.tuples(st.integers(0, 9), st.integers(0, 9))
)
COVERAGES = COUNTS.map(lambda counts: coverage.of(**counts))


@pytest.mark.parametrize("nothing", [NOTHING, coverage.of(cases=0), coverage.of({"big": "bf16"}, cases=(0, 3))])
def test_no_stage_passes_without_coverage(nothing: Coverage) -> None:
    made = Evidence("race", None, plain("no hazard"), coverage=nothing)
    assert made.verdict == Verdict.UNDECIDED
    assert made.as_json()["verdict"] == "undecided"


def test_coverage_that_is_taken_away_takes_the_pass_away() -> None:
    passed = Evidence("race", None, plain("no hazard"), coverage=coverage.of(cases=1))
    assert passed.verdict is None
    assert replace(passed, coverage=NOTHING).verdict == Verdict.UNDECIDED


@pytest.mark.parametrize(
    ("claimed", "worth"), [(Verdict.CHECKED, Verdict.BUILT), (Verdict.ACCEPTED, Verdict.UNDECIDED)]
)
def test_no_verdict_is_better_than_its_evidence(claimed: Verdict, worth: Verdict) -> None:
    assert Judgement(claimed, "confirm", plain("1.1x")).verdict == worth
    covered = Judgement(claimed, "confirm", plain("1.1x"), coverage=coverage.of(cases=1))
    assert covered.verdict == claimed
    told = covered.as_json()
    assert Judgement.from_json(told) == covered
    del told["coverage"]
    assert Judgement.from_json(told).verdict == worth


@given(COVERAGES, COVERAGES)
def test_two_coverages_together_count_what_each_counts(a: Coverage, b: Coverage) -> None:
    both = a + b
    assert both.empty == (a.empty and b.empty)
    assert sum(c.ran for c in both.counts.values()) == sum(c.ran for x in (a, b) for c in x.counts.values())


@given(COVERAGES)
def test_coverage_survives_json(a: Coverage) -> None:
    assert Coverage.from_json(a.as_json()) == a
