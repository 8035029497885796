"""What the timeline pass says of one kernel: frozen dataclasses, written as JSON.

`collect.py` makes them, with `decode.py`, `summary.py` and `sm_waves.py`. Needs no numpy: a kept profile is shown
without it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pgo_agent.sandbox.bundle.documents import Static
from pgo_agent.sandbox.json_codec import Record
from pgo_agent.sandbox.profile.memo import Artefact
from pgo_agent.sandbox.profile.timeline.scope_sets import Scope, Unsupported


@dataclass(frozen=True)
class Lost(Record):
    """Entries that no record could be made of."""

    overwritten: int = 0  # by newer ones, in buffers that were full
    unpaired: int = 0  # a start without its end, or an end without its start

    def __add__(self, other: "Lost") -> "Lost":
        return Lost(self.overwritten + other.overwritten, self.unpaired + other.unpaired)


@dataclass(frozen=True)
class Spread(Record):
    """Cycles."""

    p20: float
    p50: float
    p80: float

    def less(self, cycles: float) -> "Spread":
        return Spread(*(max(0.0, x - cycles) for x in (self.p20, self.p50, self.p80)))


@dataclass(frozen=True)
class ScopeTime(Record):
    """One scope; what is of executions is of one warp's."""

    scope: Scope
    cycles: Spread  # of an execution, without the cost of the record
    count: float  # executions by a warp in a block, in the middle over blocks and warps
    variation: float  # (P80 - P20) x count: cycles of a block that are not the same every time
    share: float | None  # of the cycles of its role; None where the role was not recorded as a whole
    samples: int  # executions that were seen


@dataclass(frozen=True)
class Timed(Record):
    """What one build recorded in all its repeats."""

    scopes: tuple[ScopeTime, ...]
    lost: Lost
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Wave(Record):
    """On every SM as many blocks as run there at a time; in the order of their begin."""

    blocks: int
    begin_ns: int  # from the begin of the first block of the launch
    end_ns: int


@dataclass(frozen=True)
class Waves(Record):
    sms: int  # that ran a block
    blocks: int
    resident: int  # most blocks that one SM ran at a time
    span_ns: int  # from the first begin to the last end
    tail_ns: int  # from when the first SM had ended its last block to the last end
    imbalance: float  # busy time of the SM that was busy longest, over the mean of all SMs; 1 is even
    busy: float  # share of all SMs' time in the span in which they ran a block
    waves: tuple[Wave, ...]
    running: tuple[float, ...]  # blocks that ran, in the mean of each of some equal parts of the span


@dataclass(frozen=True)
class Pass(Record):
    """One instrumented build, launched."""

    timed: Timed
    overhead: float  # how many times as long a launch takes as one of the plain build
    same_outputs: bool  # as the plain build's, to the bit
    static: Static  # registers, spills, shared memory of this build
    records: tuple[Artefact, ...]  # as they came from the GPU, of some blocks, for each repeat: `decode` reads them
    block_bytes: int  # of these records, for a block
    warps: int  # of a block
    numbers: dict[str, str]  # as the records name scopes -> name
    build: str  # key of the instrumented build


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
        by_name = {s.scope.name: s for p in reversed(calmest) for s in p.timed.scopes}
        return tuple(sorted(by_name.values(), key=lambda s: (s.scope.first, -s.scope.last)))

    def placed(self, file: str, sources: Mapping[int, int]) -> "Timeline":
        """Return it with the place in the kernel's file of every scope: the text of a timed build names none.

        `sources`: line of the TTGIR -> line of the file.
        """
        passes = (
            replace(p, timed=replace(p.timed, scopes=tuple(_placed(s, file, sources) for s in p.timed.scopes)))
            for p in self.passes
        )
        return replace(self, passes=tuple(passes))


def _placed(s: ScopeTime, file: str, sources: Mapping[int, int]) -> ScopeTime:
    line = next((sources[n] for n in range(s.scope.first, s.scope.last + 1) if n in sources), 0)
    unchanged = s.scope.source or not line
    return s if unchanged else replace(s, scope=replace(s.scope, source=f"{file}:{line}"))
