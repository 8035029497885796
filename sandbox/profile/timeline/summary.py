"""Statistics of recorded scopes: how many cycles each takes, how much that varies, and what share of its role's.

Over the launches of one build the P20, P50 and P80 of single executions (numpy's linear percentiles). A recorded scope
is longer than the code in it by the cost of a record, which the empty scopes of the calibrating build show: its P50 is
taken off, never below zero. Scopes that hold others also hold the cost of their records; that is not taken off.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

import numpy as np
from pgo_agent.sandbox.profile.timeline.decode import Decoded, Numbers, Records
from pgo_agent.sandbox.profile.timeline.find_scopes import Kind
from pgo_agent.sandbox.profile.timeline.scope_sets import Scope
from pgo_agent.sandbox.profile.timeline.types import Lost, ScopeTime, Spread, Timed


def overhead(plain_ms: Sequence[float], instrumented_ms: Sequence[float]) -> float:
    """Return how many times as long the instrumented launches took, by the medians. Raises ValueError without times."""
    if not plain_ms or not instrumented_ms or min(*plain_ms, *instrumented_ms) <= 0:
        raise ValueError("an overhead needs times of both builds, above zero")
    return median(instrumented_ms) / median(plain_ms)


def calibration(repeats: Iterable[Decoded], numbers: Mapping[int, Scope]) -> dict[str, float]:
    """Return the cycles of an empty scope in each role, their P50: what a record costs there."""
    by_role: dict[str, list[Numbers]] = {}
    for decoded in repeats:
        for number, scope in numbers.items():
            if scope.kind is Kind.EMPTY:
                of = decoded.records.cycles[decoded.records.scope == number]
                by_role.setdefault(scope.role, []).append(of)
    joined = {role: np.concatenate(parts) for role, parts in by_role.items()}
    return {role: float(np.percentile(x, 50)) for role, x in joined.items() if len(x)}


def summarize(repeats: Sequence[Decoded], numbers: Mapping[int, Scope], costs: Mapping[str, float]) -> Timed:
    """Return every scope that was recorded at least once, in the order of the text.

    `numbers`: scopes as the build numbers them. `costs`: of a record in each role, as `calibration` gives it; a role
    without one is taken as it was recorded.
    """
    lost = sum((d.lost for d in repeats), Lost())
    problems = tuple(dict.fromkeys(p for d in repeats for p in d.problems))
    joined = _Joined(repeats)
    frames = {s.role: n for n, s in numbers.items() if s.kind is Kind.ROLE}
    unknown = sorted(set(np.unique(joined.scope).tolist()) - numbers.keys())
    if unknown:
        problems += (f"records of scopes that the build does not have: {unknown}",)
    timed = [
        _timed(joined, n, s, costs.get(s.role, 0.0), frames.get(s.role)) for n, s in numbers.items() if joined.has(n)
    ]
    ordered = tuple(sorted(timed, key=lambda t: (t.scope.first, -t.scope.last)))
    return Timed(ordered, lost, problems)


class _Joined:
    """The records of all repeats; `unit` is one warp of one block of one repeat."""

    def __init__(self, repeats: Sequence[Decoded]) -> None:
        parts: list[Records] = [d.records for d in repeats]
        self.scope = np.concatenate([p.scope for p in parts]) if parts else np.zeros(0, np.int64)
        self.cycles = np.concatenate([p.cycles for p in parts]) if parts else np.zeros(0, np.int64)
        keys = [(i << 48) + (p.block << 8) + p.warp for i, p in enumerate(parts)]  # a block has 32 warps, words 32 bits
        self.unit = np.unique(np.concatenate(keys), return_inverse=True)[1] if parts else np.zeros(0, np.int64)

    def has(self, number: int) -> bool:
        return bool((self.scope == number).any())

    def of(self, number: int) -> tuple[Numbers, Numbers]:
        """Return the units and cycles of a scope's executions."""
        rows = self.scope == number
        return self.unit[rows], self.cycles[rows]


def _timed(joined: _Joined, number: int, scope: Scope, cost: float, frame: int | None) -> ScopeTime:
    units, cycles = joined.of(number)
    low, mid, high = (float(x) for x in np.percentile(cycles, (20, 50, 80)))
    spread = Spread(low, mid, high).less(cost)
    count = float(np.median(np.unique(units, return_counts=True)[1]))
    share = _share(units, cycles, cost, *joined.of(frame)) if frame is not None else None
    return ScopeTime(scope, spread, count, (high - low) * count, share, len(cycles))


def _share(units: Numbers, cycles: Numbers, cost: float, framed: Numbers, role_cycles: Numbers) -> float | None:
    """Of the cycles of the role in those warps that recorded the role as a whole."""
    common = np.isin(units, framed)
    total = float(np.maximum(role_cycles - cost, 0).sum())
    return float(np.maximum(cycles[common] - cost, 0).sum()) / total if total else None
