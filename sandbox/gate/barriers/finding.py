"""A finding of the simulator: a kind, one sentence, and the trace behind it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pgo_agent.sandbox.gate.coverage import NOTHING, Coverage
from pgo_agent.sandbox.json_codec import JsonObject


class Kind(StrEnum):
    DEADLOCK = "deadlock"  # some run ends with a role that waits forever
    ARRIVALS = "arrivals"  # more arrivals in one phase than its count, or an arrival that may fall into the wrong phase
    BYTES = "bytes"  # bytes of a copy that nobody expects or waits for, or expected bytes that never come
    OVERTAKEN = "overtaken"  # the next phase may complete before a wait looks: it then blocks
    EARLY = "early"  # a wait may pass on an older phase of the same parity, before the one that it is for
    LIFETIME = "lifetime"  # a barrier used before init or after inval, or invalidated while in use
    GROUPS = "groups"  # a wait for cp.async, wgmma or TMA stores that passes too early
    MEMORY = "memory"  # a slot of shared memory overwritten while it is read, or read before it was filled
    NONE = "no finding"  # nothing found in the runs that were tried; not a proof
    UNDECIDED = "undecided"  # not modelled: the sentence names the operation


@dataclass(frozen=True)
class Seen:
    """How far the runs went into one loop with barriers or asynchronous copies."""

    most: int = 0  # iterations in one go, over all runs
    iterations: int = 0  # of all runs together
    fixed: bool = False  # the text fixes how often it runs
    launched: bool = False  # a launch of a case was followed through it to the end
    why: str = ""  # it did not run more often

    def __add__(self, other: "Seen") -> "Seen":
        return Seen(
            max(self.most, other.most),
            self.iterations + other.iterations,
            self.fixed or other.fixed,
            self.launched or other.launched,
            self.why or other.why,
        )


@dataclass(frozen=True)
class Finding:
    """A finding, no finding, or why neither could be decided."""

    kind: Kind
    sentence: str  # one line that a person understands
    trace: tuple[str, ...] = ()  # who waits for what, who would have to arrive, with lines
    coverage: Coverage = NOTHING  # what was simulated: runs, operations, loops entered, their iterations
    loops: Mapping[str, Seen] = field(default_factory=dict)  # where a loop stands -> how far the runs went into it
    unsettled: bool = False  # undecided for want of arguments: a launch of a case has some

    @property
    def found(self) -> bool:
        """Whether something is wrong with the program."""
        return self.kind not in (Kind.NONE, Kind.UNDECIDED)

    def as_json(self) -> JsonObject:
        fields = {"kind": str(self.kind), "sentence": self.sentence, "trace": list(self.trace)}
        loops = {at: vars(seen) for at, seen in self.loops.items()}
        return fields | {"coverage": self.coverage.as_json(), "loops": loops, "unsettled": self.unsettled}


def from_json(x: Mapping[str, Any]) -> Finding:
    """Read what `as_json` gave."""
    loops = {at: Seen(**seen) for at, seen in x["loops"].items()}
    covered = Coverage.from_json(x["coverage"])
    return Finding(Kind(x["kind"]), x["sentence"], tuple(x["trace"]), covered, loops, x["unsettled"])
