"""The figures of Nsight Compute that views and prompts tell: why warps waited, at which lines, and sentences of all.

It relies on the counters alone: no other pass of a profile shows in what it says.
"""

from collections.abc import Iterator, Mapping

from pgo_agent.agent.profile.format import printed
from pgo_agent.sandbox.profile.counters.types import Counters, LineCounters
from pgo_agent.sandbox.profile.pseudocode import ISSUED

REASONS, LINES = 6, 6  # that are told


def top(stalls: Mapping[str, float]) -> dict[str, float]:
    """Return the commonest reasons of waiting, with their shares."""
    waits = ((readable(r), x) for r, x in stalls.items() if r != ISSUED)
    return dict(sorted(waits, key=lambda x: -x[1])[:REASONS])


def dearest(c: Counters) -> Iterator[LineCounters]:
    """Yield the source lines with the most samples of warps."""
    yield from sorted((n for n in c.source if n.line and n.samples), key=lambda n: -n.samples)[:LINES]


def readable(reason: str) -> str:
    return reason.replace("_", " ")


def told(c: Counters) -> Iterator[str]:
    """Yield sentences with all figures of one kernel."""
    yield f"{c.kernel} by {c.tool}: of its peak {_shares(dict(sorted(c.speed_of_light.items(), key=lambda x: -x[1])))}"
    yield f"warps waited for {_shares(top(c.stalls))}"
    if c.bank_conflicts:
        b = c.bank_conflicts
        both = f"{printed(b.loads)} of loads and {printed(b.stores)} of stores"
        yield f"bank conflicts: {both}, {_percent(b.share)} of all passes through shared memory"
    yield ", ".join(_others(c))
    for n in dearest(c):
        share = n.samples / sum(other.samples for other in c.source)
        waits = _shares(top({r: x / n.samples for r, x in n.stalls.items()}), 2)
        because = f", which waited for {waits}" if waits else ""
        yield f"line {n.line}: {_percent(share)} of the samples of warps{because}"


def _others(c: Counters) -> Iterator[str]:
    hits = (("L1 hit rate", c.l1_hit), ("L2 hit rate", c.l2_hit), ("warps active of those an SM holds", c.warps_active))
    yield from (f"{name} {_percent(share)}" for name, share in hits if share is not None)
    if c.dram_bytes is not None:
        yield f"device memory moved {printed(c.dram_bytes / 1e6)} MB"
    yield f"{c.executed} instructions executed, each counted once for a warp"


def _shares(shares: Mapping[str, float], most: int = REASONS) -> str:
    return ", ".join(f"{name} {_percent(share)}" for name, share in list(shares.items())[:most] if share)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
