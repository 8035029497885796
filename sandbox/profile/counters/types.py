"""What Nsight Compute counted in one launch of a kernel: frozen dataclasses, written as JSON.

Nsight Compute replays the launch many times, one after another and with clean caches, so its duration is no evidence
of speed. Shares are 0 to 1.
"""

from dataclasses import dataclass

from pgo_agent.sandbox.json_codec import Record
from pgo_agent.sandbox.judge.references import PlanRef


@dataclass(frozen=True)
class LaunchOnce(Record):
    """What `launcher.py` is asked, in a file."""

    contract: str  # path
    case: str
    kernel: str  # key
    plain: PlanRef
    seconds: float  # after which it ends


@dataclass(frozen=True)
class LineCounters(Record):
    """What one source line, or one line of the TTGIR, cost."""

    line: int  # from 1; 0 for instructions that name none
    executed: int  # instructions, each counted once for a warp
    samples: int  # of warps that were looked at there
    stalls: dict[str, int]  # reason -> samples


@dataclass(frozen=True)
class InstructionCounters(Record):
    """What one machine instruction cost."""

    offset: int  # bytes from the kernel's start; negative or beyond its end: of a function that it calls
    opcode: str  # with its modifiers; empty where the reader knows no opcodes of this GPU
    line: int  # of the TTGIR, from 1; 0 where none is known
    executed: int  # each counted once for a warp
    samples: int  # of warps that were looked at there
    stalls: dict[str, int]  # reason -> samples; `selected`: it was issued


@dataclass(frozen=True)
class BankConflicts(Record):
    """Of shared memory, by the pipe of loads and stores: what wgmma and bulk copies do there is not in it."""

    loads: float  # conflicts: extra passes that loads took
    stores: float
    share: float  # of all passes through shared memory


@dataclass(frozen=True)
class Counters(Record):
    tool: str  # "ncu 2025.3.1"
    kernel: str
    duration_ns: float  # under the profiler
    speed_of_light: dict[str, float]  # unit (sm, tensor, l1, l2, dram) -> share of its peak that was sustained
    stalls: dict[str, float]  # reason -> share of the samples of warps
    executed: int  # instructions, each counted once for a warp
    lines: tuple[LineCounters, ...]  # of the TTGIR that was compiled
    source: tuple[LineCounters, ...]  # of the file that the kernel stands in
    bank_conflicts: BankConflicts | None  # None where the tool has no such counter
    l1_hit: float | None
    l2_hit: float | None
    dram_bytes: float | None  # read and written; what still stands in the L2 at the end was not written yet
    warps_active: float | None  # of the most that an SM holds
    metrics: dict[str, float]  # by ncu's own names: what the figures above are made of
    code: tuple[InstructionCounters, ...] = ()  # in the order of their addresses, as far as ncu names them
    unlined: str = ""  # why there are no `lines`, in one line; empty where there are
