"""What the timeline pass says of one kernel: frozen dataclasses, written as JSON. `take.py` makes them."""

from dataclasses import dataclass
from typing import Any

from pgo_agent.sandbox.profile.codec import Record
from pgo_agent.sandbox.profile.passes import Artefact
from pgo_agent.sandbox.profile.timeline.scopes import Unsupported
from pgo_agent.sandbox.profile.timeline.summary import ScopeTime, Timed
from pgo_agent.sandbox.profile.timeline.waves import Waves


@dataclass(frozen=True)
class Pass(Record):
    """One instrumented build, launched."""

    timed: Timed
    overhead: float  # how many times as long a launch takes as one of the plain build
    same_outputs: bool  # as the plain build's, to the bit
    static: dict[str, Any]  # registers, spills, shared memory of this build
    records: tuple[Artefact, ...]  # as they came from the GPU, of some blocks, for each repeat: `decode` reads them
    block_bytes: int  # of these records, for a block
    warps: int  # of a block
    numbers: dict[str, str]  # as the records name scopes -> name


@dataclass(frozen=True)
class Timeline(Record):
    passes: tuple[Pass, ...]  # the calibrating one first
    costs: dict[str, float]  # cycles of a record in each role
    waves: Waves | None  # of the calibrating build's last launch
    refused: tuple[Unsupported, ...]  # what could not be recorded
    plain_ms: tuple[float, ...]  # of calls of the launcher with the plain build, between the instrumented ones
    machine: dict[str, str]  # GPU, driver and torch that it was taken with

    @property
    def scopes(self) -> tuple[ScopeTime, ...]:
        """Every scope once, in the order of the text; of one that several builds recorded, the least disturbed."""
        calmest = sorted(self.passes, key=lambda p: p.overhead)
        found = {s.scope.name: s for p in reversed(calmest) for s in p.timed.scopes}
        return tuple(sorted(found.values(), key=lambda s: (s.scope.first, -s.scope.last)))
