"""The regions of a dispatch: which winner runs behind which guard.

A winner's cases share a guard where one tells them from all other public cases; otherwise each case has its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pgo_agent.agent.commands.dispatch import guards
from pgo_agent.agent.commands.dispatch.guards import Guard
from pgo_agent.agent.commands.dispatch.winners import Winner
from pgo_agent.agent.run.record.candidate import Candidate
from pgo_agent.sandbox.json_codec import JsonObject


@dataclass(frozen=True)
class Region:
    """One winner, and what arguments it is for."""

    candidate: Candidate
    cases: tuple[str, ...]  # public ones that it won, without their set
    guard: Guard


@dataclass(frozen=True)
class Limits:
    """What proofs have shown so far. Regions are named by candidate and cases."""

    exact: frozenset[tuple[str, ...]] = frozenset()  # only the sizes of the cases
    dropped: frozenset[tuple[str, ...]] = frozenset()

    def tighter(self, region: Region) -> "Limits":
        """Return the limits without what a region takes in beside its cases; without it, if it takes in no more."""
        name = _name(region.candidate, region.cases)
        if region.guard.exact or name in self.exact:
            return Limits(self.exact, self.dropped | {name})
        return Limits(self.exact | {name}, self.dropped)


def of(winners: Sequence[Winner], inputs: Mapping[str, JsonObject], limits: Limits) -> list[Region]:
    """Return the regions of winners. `inputs`: public case, without its set -> what its launcher is given."""
    result = list[Region]()
    for winner in winners:
        cases = tuple(c for c in (n.split("/", 1)[-1] for n in winner.gains) if c in inputs)
        whole = _region(winner.candidate, cases, inputs, limits) if cases else None
        parts = [(c,) for c in cases] if whole is None and len(cases) > 1 else []
        alone = (_region(winner.candidate, part, inputs, limits) for part in parts)
        result += [r for r in (whole, *alone) if r is not None]
    return [r for r in result if _name(r.candidate, r.cases) not in limits.dropped]


def chosen(regions: Sequence[Region], inputs: JsonObject) -> Region | None:
    """Return the region that arguments fall into; None: the original runs."""
    return next((r for r in regions if r.guard.holds(inputs)), None)


def _region(
    candidate: Candidate, cases: tuple[str, ...], inputs: Mapping[str, JsonObject], limits: Limits
) -> Region | None:
    others = [x for c, x in inputs.items() if c not in cases]
    exact = _name(candidate, cases) in limits.exact
    found = guards.guard([inputs[c] for c in cases], others, exact)
    return Region(candidate, cases, found) if found else None


def _name(candidate: Candidate, cases: tuple[str, ...]) -> tuple[str, ...]:
    return candidate.id, *cases
