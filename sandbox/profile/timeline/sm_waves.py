"""How the blocks of a launch filled the SMs, by the headers of their records: waves, tail, imbalance.

Times are of the GPU's global timer, which all SMs share; it advances in steps (32 ns on some GPUs, 1 us on others), so
differences of a few steps mean nothing. An instrumented launch is seen, not the plain one.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from pgo_agent.sandbox.profile.timeline.decode import Block
from pgo_agent.sandbox.profile.timeline.types import Wave, Waves

SLICES = 60  # equal parts of a launch, for each of which it is said how many blocks ran


def waves(blocks: Sequence[Block]) -> Waves | None:
    """Return the waves of one launch; None without blocks, or when a block ended before it began."""
    if not blocks or any(b.ns < 0 for b in blocks):
        return None
    first, last = min(b.begin_ns for b in blocks), max(b.end_ns for b in blocks)
    by_sm: dict[int, list[Block]] = defaultdict(list)
    for b in sorted(blocks, key=lambda b: (b.begin_ns, b.end_ns, b.block)):
        by_sm[b.sm].append(b)
    busy = [_busy(listed) for listed in by_sm.values()]
    resident = max(_at_once(listed) for listed in by_sm.values())
    earliest = min(max(b.end_ns for b in listed) for listed in by_sm.values())
    span, mean = last - first, sum(busy) / len(busy)
    return Waves(
        sms=len(by_sm),
        blocks=len(blocks),
        resident=resident,
        span_ns=span,
        tail_ns=last - earliest,
        imbalance=max(busy) / mean if mean else 1.0,
        busy=mean / span if span else 1.0,
        waves=tuple(_waves(list(by_sm.values()), resident, first)),
        running=_running(blocks, first, last),
    )


def _waves(by_sm: Sequence[Sequence[Block]], resident: int, first: int) -> list[Wave]:
    most = max(map(len, by_sm))
    cut = [[b for listed in by_sm for b in listed[i : i + resident]] for i in range(0, most, resident)]
    return [Wave(len(w), min(b.begin_ns for b in w) - first, max(b.end_ns for b in w) - first) for w in cut]


def _running(blocks: Sequence[Block], first: int, last: int) -> tuple[float, ...]:
    """() for a launch that took no time."""
    begins, ends = (np.array([getattr(b, name) - first for b in blocks]) for name in ("begin_ns", "end_ns"))
    edges = np.linspace(0, last - first, SLICES + 1)
    pairs = pairwise(edges) if last > first else ()
    return tuple(float(np.clip(np.minimum(ends, b) - np.maximum(begins, a), 0, None).sum() / (b - a)) for a, b in pairs)


def _busy(blocks: Sequence[Block]) -> int:
    """Nanoseconds in which at least one of the blocks ran; they are in the order of their begin."""
    total, until = 0, 0
    for b in blocks:
        total += max(0, b.end_ns - max(b.begin_ns, until))
        until = max(until, b.end_ns)
    return total


def _at_once(blocks: Sequence[Block]) -> int:
    """Return the most that ran at a time: one that begins when another ends takes its place."""
    edges = sorted([(b.begin_ns, 1) for b in blocks] + [(b.end_ns, -1) for b in blocks])
    most = now = 0
    for _, step in edges:
        now += step
        most = max(most, now)
    return max(most, 1)
