"""What a verdict rests on, read from the record, in words: how much was looked at, and what was left out, with why."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pgo_agent.sandbox.gate import coverage
from pgo_agent.sandbox.gate.coverage import NOTHING, Coverage


def of(evidence: Mapping[str, Any]) -> Coverage:
    """Of a candidate's evidence, as the record has it: of the stage that gave the verdict."""
    bodies = (b for b in evidence.values() if isinstance(b, dict) and "coverage" in b)
    return next((coverage.from_json(b["coverage"]) for b in bodies), NOTHING)


def counted_alike(covers: Iterable[Coverage]) -> Iterator[tuple[int, str]]:
    """How many of them counted the same, and what that is, in the order in which they come. None of nothing."""
    counts: dict[str, int] = {}
    for one in covers:
        if one != NOTHING:
            text = one.counted()
            counts[text] = counts.get(text, 0) + 1
    return ((n, text) for text, n in counts.items())


def left_out_of_any(covers: Iterable[Coverage]) -> str:
    """What one of them left out, in words: each reason once; empty where all is covered."""
    return Coverage({}, {name: why for one in covers for name, why in one.skipped.items()}).left_out()
