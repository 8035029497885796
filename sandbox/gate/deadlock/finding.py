"""What the simulator says: a kind, one sentence, and the trace behind it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    DEADLOCK = "deadlock"  # a run was found that ends with somebody waiting for good
    ARRIVALS = "arrivals"  # more arrivals in one phase than its count, or an arrival that may fall into the wrong phase
    BYTES = "bytes"  # bytes of a copy that nobody expects or waits for, or expected bytes that never come
    OVERTAKEN = "overtaken"  # the next phase may complete before a wait looks: it then blocks
    EARLY = "early"  # a wait may pass on an older phase of the same parity, before the one that it is for
    LIFETIME = "lifetime"  # a barrier used before init or after inval, or invalidated while in use
    GROUPS = "groups"  # a wait for cp.async, wgmma or TMA stores that lets pass what it is for
    MEMORY = "memory"  # a slot of shared memory overwritten while it is read, or read before its copy has landed
    NONE = "no finding"  # nothing found in the runs that were tried; not a proof
    UNDECIDED = "undecided"  # out of its depth: the sentence says at which operation


@dataclass(frozen=True)
class Finding:
    """One finding, or the absence of one, or why there is neither."""

    kind: Kind
    sentence: str  # one line that a person understands
    trace: tuple[str, ...] = ()  # who waits for what, who would have to arrive, with lines

    @property
    def found(self) -> bool:
        """Whether something is wrong with the program."""
        return self.kind not in (Kind.NONE, Kind.UNDECIDED)

    def as_json(self) -> dict[str, Any]:
        return {"kind": str(self.kind), "sentence": self.sentence, "trace": list(self.trace)}


def from_json(x: Mapping[str, Any]) -> Finding:
    return Finding(Kind(x["kind"]), x["sentence"], tuple(x["trace"]))
