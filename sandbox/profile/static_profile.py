"""What the static profile says of one kernel: frozen dataclasses, written as JSON by `as_json`, read by `from_json`.

Lines are of two texts: `ttgir` is a line of the TTGIR that was compiled, `source` a line of the file that the kernel
stands in; 0 where unknown. Every figure is counted or read off; none is a time.
"""

from dataclasses import dataclass, field

from pgo_agent.sandbox.json_codec import OPTIONAL, Record
from pgo_agent.sandbox.profile.backend import Occupancy, Resources
from pgo_agent.sandbox.profile.line_map import SourceLocation
from pgo_agent.sandbox.profile.ttgir_cost import SECTOR_BYTES, WIDEST_BYTES

Counts = dict[str, int]  # opcode or kind -> instructions


@dataclass(frozen=True)
class Line(Record):
    """What one line became."""

    line: int  # of the TTGIR, or of the source
    op: str  # that stands in it; empty for the source
    place: SourceLocation | None  # where a line of the TTGIR comes from
    instructions: int
    kinds: Counts
    opcodes: Counts
    live: int  # most registers live at an instruction of it; 0 where that is unknown


@dataclass(frozen=True)
class Peak(Record):
    """Where most registers hold a value at once."""

    live: int  # registers
    index: int  # of the first such instruction
    opcode: str
    ttgir: int
    source: int
    loop: int  # TTGIR line of the loop around it; 0 outside


@dataclass(frozen=True)
class MachineLoop(Record):
    """A loop of the machine code."""

    first: int  # index of its first instruction
    depth: int  # loops around it
    instructions: int  # those of loops inside of it, too
    kinds: Counts
    opcodes: Counts
    ttgir: int  # line of the scf.for that it is of, or of the wait; 0 for one that is in no TTGIR, as a dispatcher is
    source: tuple[int, int]  # first and last line of the source that the ops in that loop come from
    live: int  # most registers live in it
    waits: bool  # whether it does nothing but wait for a barrier


@dataclass(frozen=True)
class Pipeline(Record):
    """Software pipelining, as the TTGIR has it."""

    depth: int  # buffers of the deepest shared memory ring
    pendings: tuple[int, ...]  # dots that each wait leaves in flight, in the order of the text
    dots: int
    async_copies: int
    warp_specialized: bool
    requested: tuple[int, ...] = field(default=(), metadata=OPTIONAL)  # registers of a thread that other roles ask for


@dataclass(frozen=True)
class Conversion(Record):
    """A conversion between layouts."""

    ttgir: int
    source: int
    loop: int  # TTGIR line of the loop around it; 0 outside
    bytes: int  # of the whole tensor, for a block
    shared: int  # instructions on shared memory
    exchange: int  # shuffles between lanes
    other: int  # moves and the like; all three 0: it costs nothing

    @property
    def through(self) -> str:
        """What it goes through: shared memory, shuffles, registers or nothing."""
        ways = (("shared memory", self.shared), ("shuffles", self.exchange), ("registers", self.other))
        return next((way for way, count in ways if count), "nothing")


@dataclass(frozen=True)
class Access(Record):
    """A load, a store or a copy of device memory."""

    ttgir: int
    source: int
    loop: int  # TTGIR line of the loop around it; 0 outside
    op: str
    bytes: int  # of the whole tile, for a block
    element_bytes: int
    bulk: bool  # a TMA copy
    thread_run: int | None  # bytes side by side that the compiler proved for a thread; None: the layout does not say
    warp_run: int | None  # the same of a warp whose lanes follow one another
    width: int  # bytes of the narrowest instruction that it became; 0 where none names its line
    instructions: int
    share: int  # bytes of the tile that are one thread's

    @property
    def narrow(self) -> bool:
        """Whether threads move less at a time than their share of the tile would allow, up to 16 bytes."""
        return 0 < self.width < min(WIDEST_BYTES, self.share)

    @property
    def uncoalesced(self) -> bool:
        """Whether what is proven to lie side by side in a warp does not even fill a sector of 32 bytes."""
        return self.warp_run is not None and self.warp_run < min(SECTOR_BYTES, self.bytes)


@dataclass(frozen=True)
class StaticProfile(Record):
    """One built kernel, looked at without running it."""

    build: str  # key of its build in the content store
    kernel: str
    backend: str
    target: str  # sm_90, gfx950
    file: str  # that `source` lines are of; empty where unknown
    resources: Resources
    occupancy: Occupancy
    notes: tuple[str, ...]  # codes of the assembler's remarks: C7510 to C7516, C7602
    same_code: bool  # whether the instructions looked at are those of the build that is timed
    instructions: int
    kinds: Counts
    opcodes: Counts
    lines: tuple[Line, ...]  # of the TTGIR
    source: tuple[Line, ...]
    curve: tuple[int | None, ...]  # live registers at each instruction
    peak: Peak | None  # None where live registers are unknown
    loops: tuple[MachineLoop, ...]
    pipeline: Pipeline
    conversions: tuple[Conversion, ...]
    accesses: tuple[Access, ...]
    unproven: tuple[str, ...]  # arguments of which the compiler does not know that 16 divides them

    @property
    def sources(self) -> dict[int, int]:
        """Line of the TTGIR -> line of the kernel's file, of those that come from one."""
        pairs = ((n.line, n.place.line(self.file)) for n in self.lines if n.place)
        return {line: source for line, source in pairs if source}


@dataclass(frozen=True)
class Problem(Record):
    """Why there is no static profile of a kernel."""

    build: str
    backend: str
    reason: str
