"""The interface between the static profile and an architecture: what each backend must give, and its types.

NVIDIA's is `nvidia.py`, AMD's `amd.py`. A backend compiles in the box and reads text; none of them needs its GPU.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.build.versions import triton_version
from pgo_agent.sandbox.bundle.store import ContentStore, canonical
from pgo_agent.sandbox.json_codec import Record
from pgo_agent.sandbox.profile.memo import Artefact

Kind = Literal[
    "tensor",  # matrix multiply-accumulate
    "float",  # arithmetic in floating point
    "special",  # exp2, reciprocal, ...: another, slower pipe
    "convert",  # between number formats
    "integer",  # integer arithmetic and logic: addresses, mostly
    "move",  # registers, constants, predicates
    "exchange",  # between the lanes of a warp
    "shared",  # shared memory (LDS)
    "global",  # device memory
    "spill",  # local memory (scratch): registers that did not suffice
    "sync",  # barriers, fences, waits for copies
    "control",  # branches and ends
    "other",
]


@dataclass(frozen=True)
class Workbench:
    """Where the profiler works: a context for its passes."""

    builder: Builder

    @property
    def contents(self) -> ContentStore:
        return self.builder.contents

    @property
    def identity(self) -> str:
        """Device and compiler; the device's figures are part of an answer, too."""
        return canonical([repr(self.builder.device), triton_version(self.builder.box.python)]).decode()


@dataclass(frozen=True)
class Origin(Record):
    """What a kernel was made of, by a trace with locations."""

    ttgir: str  # SHA-256 of its TTGIR without locations: what was built
    located: Artefact  # the same with locations
    ttir: Artefact  # TTIR with locations, before any architecture
    warps: int  # of a block, as the launch asked
    stages: int  # of software pipelines, as the launch asked
    ctas: int  # blocks of a cluster


@dataclass(frozen=True)
class Subject(Record):
    """One built kernel, to be profiled."""

    build: str  # key of its build in the content store
    origin: Origin | None  # None where no trace makes it: a TTGIR that somebody wrote


@dataclass(frozen=True)
class Instruction:
    """One machine instruction as a disassembler or an assembler text has it."""

    address: int  # bytes from the kernel's start; for a text without addresses, its index
    opcode: str  # with its modifiers: LDG.E.128
    line: int  # of the TTGIR that was compiled, from 1; 0 where the compiler does not say
    live: int | None  # general registers that hold a value there; None where that is unknown
    targets: tuple[int, ...] = ()  # indices of the instructions that a branch may go to
    conditional: bool = True  # whether a branch may also fall through; a plain end may not
    ends: bool = False  # whether no instruction follows
    commits: bool = False  # whether it ends a group of asynchronous tensor instructions


@dataclass(frozen=True)
class Resources(Record):
    """What one block takes."""

    registers: int  # 32-bit vector registers of a thread
    scalar_registers: int  # of a warp; 0 where the architecture has no figure for it
    stack_bytes: int  # of a thread's local memory (scratch)
    spill_store_bytes: int  # code size of spills, not traffic: each store instruction once
    spill_load_bytes: int
    spilled_registers: int  # vector registers that the compiler spilled; spill bytes / 4 where it counts those
    shared_bytes: int  # of a block
    warps: int  # of a block
    lanes: int  # threads of a warp


@dataclass(frozen=True)
class Occupancy(Record):
    """How many blocks an SM (compute unit) holds at a time, and what keeps it from holding more."""

    blocks: int
    warps: int
    most_warps: int  # that it can hold
    limits: dict[str, int]  # blocks that each resource alone allows: registers, shared memory, warps, blocks, ...

    @property
    def share(self) -> float:
        """Resident warps of those that it can hold, 0 to 1."""
        return self.warps / self.most_warps

    @property
    def limiter(self) -> tuple[str, ...]:
        """The resources that allow the fewest blocks."""
        return tuple(sorted(n for n, most in self.limits.items() if most == min(self.limits.values())))


def occupancy(limits: dict[str, int], warps: int, most_warps: int) -> Occupancy:
    """Return the occupancy of blocks of `warps` warps: as many blocks as the scarcest resource allows."""
    blocks = min(limits.values())
    return Occupancy(blocks, blocks * warps, most_warps, limits)


def rounded(n: int, unit: int) -> int:
    """Round n up to a multiple of `unit`."""
    return -(-n // unit) * unit


@dataclass(frozen=True)
class Compiled:
    """A kernel as one backend compiled it, ready to be looked at."""

    target: str  # sm_90, gfx950
    name: str
    ttgir: str  # the text whose lines the instructions name
    located: str  # the same text with locations; empty where they are unknown
    resources: Resources
    instructions: tuple[Instruction, ...]
    notes: tuple[str, ...]  # codes of the assembler's remarks
    same_code: bool  # whether these instructions are those of the build that is timed


class CannotCompile(Exception):
    """The backend does not compile this kernel; the text says why. A value for the report, not a fault."""


@dataclass(frozen=True)
class Backend:
    """What the static profile needs of an architecture."""

    name: str
    compiled: Callable[[Workbench, Subject], Compiled]  # with line information, in the box. Raises CannotCompile, too
    occupancy: Callable[[Workbench, Resources], Occupancy]
    kind: Callable[[str], Kind]  # of an opcode
    access_bytes: Callable[[str], int]  # that one thread loads or stores in device memory; 0 of others and bulk copies
