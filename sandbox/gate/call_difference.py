"""How another call of a launcher differs from the first one of its case. `build/repeated_calls.py` finds it."""

from dataclasses import dataclass
from enum import StrEnum

from pgo_agent.sandbox.json_codec import Record


class Kind(StrEnum):
    FAILS = "fails"
    CONFIGURATION = "configuration"
    STEPS = "steps"  # their number
    KERNEL = "kernel"
    GRID = "grid"
    ARGUMENTS = "arguments"
    RESULTS = "results"


@dataclass(frozen=True)
class Difference(Record):
    kind: Kind
    said: str  # for a person; parts of it may be words of the candidate


Differences = dict[str, tuple[Difference, ...]]  # case -> how another call of it differs, each kind once


def together(one: Differences | None, other: Differences | None) -> Differences | None:
    """Return what is known of two builds of one launcher; None: of one it is not."""
    return None if one is None or other is None else one | other
