"""Findings in the counters of a launch, which neither the static profile nor the timeline can show.

The shares of samples are from a launch that Nsight Compute replays with clean caches: they show why warps wait, but
hardly how long. A low hit rate alone is no defect: a kernel that reads all data once hits nothing.
"""

from collections.abc import Iterator

from pgo_agent.agent.profile.findings.defect import Defect, Finding
from pgo_agent.sandbox.profile.counters.types import Counters
from pgo_agent.sandbox.profile.kernel_profile import PassName

CONFLICTS = 0.2  # of all passes through shared memory
BUSY = 0.6  # of what device memory can sustain
HITS = 0.5  # of the accesses of the L2, below which blocks share little of what they read
TIMES = 1.5  # the bytes that a case needs: above it something is moved more than once
SHARED_STALLS = ("short_scoreboard", "mio_throttle")  # waits for shared memory, and for room in its queue


def findings(c: Counters, dots: bool) -> tuple[Finding, ...]:
    """Return the findings. `dots`: whether the kernel multiplies tiles, which blocks can share."""
    return (*_conflicts(c), *(_misses(c) if dots else ()))


def traffic(moved: float, needed: float) -> tuple[Finding, ...]:
    """Return the finding that all kernels of a case together move more bytes than their target says it needs."""
    if needed <= 0 or moved < TIMES * needed:
        return ()
    times = round(moved / needed, 2)
    text = f"{moved / 1e6:.0f} MB go through device memory, {times:g} times the {needed / 1e6:.0f} MB that are needed"
    return (Finding(Defect.TRAFFIC, times, "times what is needed", 0, text, PassName.COUNTERS),)


def _conflicts(c: Counters) -> Iterator[Finding]:
    b = c.bank_conflicts
    if b is None or b.share < CONFLICTS:
        return
    waiting = [c.stalls[name] for name in SHARED_STALLS if name in c.stalls]
    share = round(min(1.0, sum(waiting)) * b.share, 3) if waiting else None
    text = f"{b.share:.0%} of the passes through shared memory are bank conflicts"
    yield Finding(Defect.BANK_CONFLICTS, round(b.share, 3), "of the passes", _line(c), text, PassName.COUNTERS, share)


def _line(c: Counters) -> int:
    """The source line where most samples wait for shared memory; 0 if none does."""
    waits = {n.line: sum(n.stalls.get(s, 0) for s in SHARED_STALLS) for n in c.source}
    line = max(waits, key=lambda n: waits[n], default=0)
    return line if waits.get(line) else 0


def _misses(c: Counters) -> Iterator[Finding]:
    busy = c.speed_of_light.get("dram", 0.0)
    if c.l2_hit is not None and c.l2_hit < HITS and busy >= BUSY:
        text = f"{c.l2_hit:.0%} of the accesses hit the L2, while device memory is {busy:.0%} busy"
        yield Finding(Defect.MISSES, round(c.l2_hit, 3), "of the accesses", 0, text, PassName.COUNTERS)
