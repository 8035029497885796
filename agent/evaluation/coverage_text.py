"""What a verdict rests on, read from the record, in words: how much was looked at, and what was left out, with why."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pgo_agent.sandbox.gate import coverage
from pgo_agent.sandbox.gate.coverage import NOTHING, Coverage


def of(evidence: Mapping[str, Any]) -> Coverage:
    """Of a candidate's evidence, as the record has it: of the stage that gave the verdict."""
    bodies = (b for b in evidence.values() if isinstance(b, dict) and "coverage" in b)
    return next((coverage.from_json(b["coverage"]) for b in bodies), NOTHING)


def alike(found: Iterable[Coverage]) -> Iterator[tuple[int, str]]:
    """How many of them cover the same, and what that is, in the order in which they come. None of nothing."""
    counts: dict[str, int] = {}
    for one in found:
        if one != NOTHING:
            said = one.said()
            counts[said] = counts.get(said, 0) + 1
    return ((n, said) for said, n in counts.items())
