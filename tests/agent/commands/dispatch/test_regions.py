"""A region that was worse in a case loses that case alone; what it takes in beside its cases goes first of all."""

from pgo_agent.agent.commands.dispatch import regions
from pgo_agent.agent.commands.dispatch.regions import Limits, Region
from pgo_agent.agent.commands.dispatch.winners import Winner
from pgo_agent.agent.moves import Proposal
from pgo_agent.agent.run.record.candidate import Candidate, NewCandidate

from tests.agent.commands.dispatch.test_guards import case

INPUTS = {"1k": case(1024, 2048), "4k": case(4096, 2048), "16k": case(16384, 2048)}


def winner(*cases: str) -> Winner:
    new = NewCandidate.of(Proposal("source", "a move", "", "def kernel(x, w): ..."), "somebody", "shipped")
    known = dict(run="r", generation=1, position=0, verdict=None, stage=None, why=None, speedup=None, seconds=None)
    made = Candidate(**vars(new), **known, bundle=None, against=None, read_build=lambda: None)
    return Winner(made, {f"CASES/{c}": 1.5 for c in cases})


def only(found: list[Region]) -> Region:
    (region,) = found
    return region


def test_it_loses_the_case_that_was_worse_and_keeps_the_others() -> None:
    won = [winner("1k", "4k", "16k")]
    whole = only(regions.of(won, INPUTS, Limits()))
    left = only(regions.of(won, INPUTS, Limits().tighter(whole, ["1k", "a probe"])))
    assert left.cases == ("4k", "16k") and not left.guard.exact and not left.guard.holds(INPUTS["1k"])
    assert regions.of(won, INPUTS, Limits().tighter(whole, ["1k", "4k", "16k"])) == []


def test_what_it_takes_in_beside_its_cases_goes_first_and_then_the_region() -> None:
    won = [winner("4k", "16k")]
    whole = only(regions.of(won, INPUTS, Limits()))
    between = case(8192, 2048)
    assert whole.guard.holds(between)
    limits = Limits().tighter(whole, ["a probe"])
    exact = only(regions.of(won, INPUTS, limits))
    assert exact.cases == whole.cases and not exact.guard.holds(between) and exact.guard.holds(INPUTS["4k"])
    assert regions.of(won, INPUTS, limits.tighter(exact, ["a probe"])) == []
