"""Which candidate of a run is fastest in which case, by what the run measured.

A candidate was timed beside the incumbent of its generation, which was timed beside another: its gain over the kernel
as shipped is the product. That is no proof, it only chooses: `proof.py` has everything judged again.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pgo_agent.agent.run import incumbent
from pgo_agent.agent.run.record.candidate import Candidate
from pgo_agent.agent.run.record.store import Store
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.gate.verdict import Verdict

GAIN = 1.02  # over the kernel as shipped, from which on a case is won
NEAR = 1.01  # a candidate that wins other cases, too, may be slower than the best one by so much
_RIGHT = {Verdict.ACCEPTED, Verdict.SLOWER, Verdict.UNDECIDED}  # confirmed or not: it passed every check of results


@dataclass(frozen=True)
class Winner:
    """A candidate and the public cases that it won."""

    candidate: Candidate
    gains: Mapping[str, float]  # case -> times faster than the kernel as shipped


def of(store: Store, run: str) -> list[Winner]:
    """Return the winners of a run, that with the most cases first. Raises UsageFault where no case was won."""
    candidates = store.candidates(run)
    gains = {c.id: g for c in candidates if c.kind == "source" and (g := _gains(store, run, c.id))}
    accepted = any(c.verdict == Verdict.ACCEPTED for c in candidates)
    best = {case: max(g.get(case, 0.0) for g in gains.values()) for g in gains.values() for case in g}
    left = {case for case, gain in best.items() if gain >= GAIN}
    if not left or not accepted:
        raise UsageFault(f"run {run} has no accepted candidate that was measured", "a run on a GPU finds one")
    result = list[Winner]()
    while left:
        won = {i: [c for c in left if g.get(c, 0.0) * NEAR >= best[c] and g[c] >= GAIN] for i, g in gains.items()}
        first = max(won, key=lambda i: (len(won[i]), sum(gains[i][c] for c in won[i])))
        result.append(Winner(store.candidate(run, first), {c: gains[first][c] for c in sorted(won[first])}))
        left -= set(won[first])
    return result


def _gains(store: Store, run: str, candidate: str) -> dict[str, float]:
    """Return case -> times faster than the kernel as shipped; nothing for what was not right or not timed."""
    found = store.candidate(run, candidate)
    if found.verdict not in _RIGHT or not found.against:
        return {}
    gains = incumbent.gains(store.evidence(run, candidate))
    if found.against == incumbent.SHIPPED:
        return gains
    before = _gains(store, run, found.against)
    return {case: gain * before[case] for case, gain in gains.items() if case in before}
