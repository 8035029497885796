"""The regions of a dispatch: which winner runs behind which guard.

A winner's cases share a guard where one tells them from all other public cases; otherwise each case has its own.
"""

from collections.abc import Collection, Mapping, Sequence
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
    """What proofs have shown so far."""

    exact: frozenset[tuple[str, ...]] = frozenset()  # candidate and cases: only the sizes of the cases
    lost: frozenset[tuple[str, str]] = frozenset()  # candidate and case, which the original keeps

    def tighter(self, region: Region, worse: Collection[str]) -> "Limits":
        """Return the limits after a region was worse in some of its cases, or of those that it takes in beside them.

        It loses its cases that were worse. Where none was, it takes in nothing beside its cases, or loses all of them
        if it does not even then.
        """
        lost = [c for c in region.cases if c in worse]
        name = _name(region.candidate, region.cases)
        if not lost and not region.guard.exact and name not in self.exact:
            return Limits(self.exact | {name}, self.lost)
        return Limits(self.exact, self.lost | {(region.candidate.id, c) for c in lost or region.cases})


def of(winners: Sequence[Winner], inputs: Mapping[str, JsonObject], limits: Limits) -> list[Region]:
    """Return the regions of winners. `inputs`: public case, without its set -> what its launcher is given."""
    result = list[Region]()
    for winner in winners:
        won = (n.split("/", 1)[-1] for n in winner.gains)
        cases = tuple(c for c in won if c in inputs and (winner.candidate.id, c) not in limits.lost)
        whole = _region(winner.candidate, cases, inputs, limits) if cases else None
        parts = [(c,) for c in cases] if whole is None and len(cases) > 1 else []
        alone = (_region(winner.candidate, part, inputs, limits) for part in parts)
        result += [r for r in (whole, *alone) if r is not None]
    return result


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
