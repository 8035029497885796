"""The coverage of a verdict as text, from the record: how much was checked, and what was left out and why."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pgo_agent.sandbox.gate.coverage import NOTHING, Coverage


def of(evidence: Mapping[str, Any]) -> Coverage:
    """Return the coverage in a candidate's recorded evidence: that of the stage which gave the verdict."""
    bodies = (b for b in evidence.values() if isinstance(b, dict) and "coverage" in b)
    return next((Coverage.from_json(b["coverage"]) for b in bodies), NOTHING)


def counted_alike(covers: Iterable[Coverage]) -> Iterator[tuple[int, str]]:
    """Yield each count as text, with how many of the coverages have it, in their order. Empty ones are left out."""
    counts = Counter(one.counted() for one in covers if one != NOTHING)
    return ((n, text) for text, n in counts.items())


def left_out_of_any(covers: Iterable[Coverage]) -> str:
    """Return what any of them left out, as text, each reason once; empty if all is covered."""
    return Coverage({}, {name: why for one in covers for name, why in one.skipped.items()}).left_out()
