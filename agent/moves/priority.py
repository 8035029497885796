"""What holds a source back, by case, and which of it a move answers: this decides a proposal's turn and what it cites.

Proposes nothing.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pgo_agent.agent.moves.move import Proposal
from pgo_agent.agent.profile.findings import Defect
from pgo_agent.agent.profile.summary import Bottleneck

HYPOTHESIS = "nothing in the profile asks for it"
Key = tuple[str, Defect]  # a defect of a kernel


@dataclass(frozen=True)
class ProfileEvidence:
    """The bottlenecks of a source."""

    by_case: Mapping[str, Sequence[Bottleneck]] | None  # the one that costs most first; None: nobody looked

    def of(self, kernel: str, cures: Collection[Defect], cases: Collection[str] | None = None) -> Bottleneck | None:
        """Return the most pressing bottleneck of a kernel that is one of `cures`, in some cases or in all of them.

        It is told as it is in the case where it takes the most time.
        """
        for key in self.order:
            seen = [b for c, b in self._all if _key(b) == key and (cases is None or c in cases)]
            if seen and key[0] == kernel and key[1] in cures:
                return max(seen, key=_share)  # the first of equals
        return None

    def place(self, cites: Bottleneck | None) -> int:
        """Return the turn of a proposal that cites this: what cites nothing comes last."""
        return len(self.order) if cites is None else self.order.index(_key(cites))

    def cite(self, proposal: Proposal, cites: Bottleneck | None) -> Proposal:
        """Return the proposal with what it cites; one that nothing asks for says so, where somebody looked."""
        if cites is None and self.by_case is not None:
            return replace(proposal, rationale=f"{proposal.rationale}; {HYPOTHESIS}")
        return replace(proposal, cites=cites)

    @cached_property
    def order(self) -> list[Key]:
        """List each defect of a kernel once: by its best place in a case, then by its share of time in all."""
        taken, place = dict[Key, float](), dict[Key, int]()
        for bottlenecks in (self.by_case or {}).values():
            for i, b in enumerate(bottlenecks):
                taken[_key(b)] = taken.get(_key(b), 0.0) + _share(b)
                place[_key(b)] = min(place.get(_key(b), i), i)
        return sorted(taken, key=lambda k: (place[k], -taken[k]))

    @property
    def _all(self) -> list[tuple[str, Bottleneck]]:
        return [(case, b) for case, bottlenecks in (self.by_case or {}).items() for b in bottlenecks]


def _key(b: Bottleneck) -> Key:
    return b.kernel, b.finding.defect


def _share(b: Bottleneck) -> float:
    return b.share or 0.0


NO_PROFILE = ProfileEvidence(None)
