"""What the figures of a report mean: metrics as shares and counts, instructions as lines of TTGIR and source. Pure.

Relies on ncu's names of metrics (2022.3 to 2026.3; compute capability 8.0 to 9.0). A metric that is not there, or has a
unit that is not known here, leaves its figure out: nothing is derived from another that only sounds alike.

Instructions are identified by their offset from the kernel's start. Where the build with lines is the same code as the
one that ran, byte by byte, an offset is the same instruction in both: what is counted is the build that is timed. Had
the build with lines been launched in its place, another code would be counted wherever ptxas decides otherwise for it.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from pgo_agent.sandbox.profile.backend import Instruction
from pgo_agent.sandbox.profile.counters.ncu import Absent
from pgo_agent.sandbox.profile.counters.ncu_report import Facts, Seen
from pgo_agent.sandbox.profile.counters.types import BankConflicts, Counters, InstructionCounters, LineCounters

PEAKS: Mapping[str, tuple[str, ...]] = {  # unit -> metrics, the first that is there counts; per cent of its peak
    "sm": ("sm__throughput.avg.pct_of_peak_sustained_elapsed",),
    "tensor": (
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    ),
    "l1": ("l1tex__throughput.avg.pct_of_peak_sustained_active",),
    "l2": ("lts__throughput.avg.pct_of_peak_sustained_elapsed",),
    "dram": (
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
        "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    ),
}
DURATION, EXECUTED = "gpu__time_duration.sum", "smsp__inst_executed.sum"
READ, WRITTEN, MOVED = "dram__bytes_read.sum", "dram__bytes_write.sum", "dram__bytes.sum.per_second"
L1_HIT, L2_HIT = "l1tex__t_sector_hit_rate.pct", "lts__t_sector_hit_rate.pct"
WARPS = "sm__warps_active.avg.pct_of_peak_sustained_active"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared"
PASSES = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
OF_PEAK = ".pct_of_peak_sustained_elapsed"
UNITS = frozenset({"ns", "nsecond", "byte", "byte/s", "byte/second", "inst", "%", ""})  # ones, and per cent
NAMES_OTHERS = "ncu names other instructions than the build has"

K = TypeVar("K")


@dataclass(frozen=True)
class Code:
    """The build that ran, with the lines that another build of the same TTGIR names."""

    instructions: tuple[Instruction, ...] = ()
    sources: Mapping[int, int] | None = None  # line of the TTGIR -> of the kernel's file; None where unknown
    unlined: str = ""  # why the lines of these instructions do not count


class Metrics:
    """The metrics of a report; keeps those that were asked for."""

    def __init__(self, facts: Facts) -> None:
        self._all = facts.metrics
        self.used: dict[str, float] = {}

    def number(self, *names: str) -> float | None:
        """Return the first of these metrics that the report has, in its base unit; None without."""
        for name in names:
            metric = self._all.get(name)
            if metric and metric.unit in UNITS:
                self.used[name] = metric.value
                return metric.value
        return None

    def share(self, *names: str) -> float | None:
        """Return the first of these metrics that the report has, from percent to a share; None without."""
        percent = self.number(*names)
        return None if percent is None else percent / 100


def counters(facts: Facts, tool: str, code: Code) -> Counters:
    """Return the counters in a report. Raises Absent for one without a duration or counts of instructions."""
    m = Metrics(facts)
    duration, executed = m.number(DURATION), m.number(EXECUTED)
    if duration is None or executed is None:
        raise Absent("the report has no duration or no executed instructions")
    unlined = code.unlined or _disagreement(facts.instructions, code.instructions)
    lines = {} if unlined else {i.address: i.line for i in code.instructions}
    counted = tuple(_instruction(seen, lines) for seen in facts.instructions)
    sources = None if unlined else code.sources
    return Counters(
        tool=tool,
        kernel=facts.kernel,
        duration_ns=duration,
        speed_of_light=_speed_of_light(m),
        stalls=stalls(counted),
        executed=sum(c.executed for c in counted) or int(executed),
        lines=() if unlined else by_line(counted, lambda line: line),
        source=() if sources is None else by_line(counted, lambda line: sources.get(line, 0)),
        bank_conflicts=_conflicts(m),
        l1_hit=m.share(L1_HIT),
        l2_hit=m.share(L2_HIT),
        dram_bytes=_moved(m, duration),
        warps_active=m.share(WARPS),
        metrics=m.used,
        code=counted,
        unlined=unlined,
    )


def stalls(counted: Iterable[InstructionCounters]) -> dict[str, float]:
    """Return reason -> share of all samples, the largest first."""
    total = _together(c.stalls for c in counted)
    return {reason: n / total.total() for reason, n in total.most_common()}


def by_line(counted: Iterable[InstructionCounters], line: Callable[[int], int]) -> tuple[LineCounters, ...]:
    """Return what each line cost; `line` gives the one that counts for a line of the TTGIR."""
    groups = defaultdict[int, list[InstructionCounters]](list)
    for c in counted:
        groups[line(c.line)].append(c)
    return tuple(
        LineCounters(n, sum(c.executed for c in g), sum(c.samples for c in g), dict(_together(c.stalls for c in g)))
        for n, g in sorted(groups.items())
    )


def _together(parts: Iterable[Mapping[K, int]]) -> Counter[K]:
    total = Counter[K]()
    for part in parts:
        total.update(part)
    return total


def _instruction(seen: Seen, lines: Mapping[int, int]) -> InstructionCounters:
    samples = sum(seen.stalls.values())
    return InstructionCounters(
        seen.offset, opcode(seen.text), lines.get(seen.offset, 0), seen.executed, samples, seen.stalls
    )


def opcode(text: str) -> str:
    """That of an instruction's text: behind its guard, before its operands."""
    words = text.split()
    if words and words[0].startswith("@"):
        words = words[1:]
    return words[0].rstrip(";") if words else ""


def _disagreement(seen: Iterable[Seen], built: tuple[Instruction, ...]) -> str:
    """Return why instructions of a report are not those of a build, by their opcodes; empty where they are."""
    opcodes = {i.address: i.opcode for i in built}
    if len(opcodes) != len(built):
        return "the build has several functions, whose addresses are not told apart"
    for s in seen:
        ours, theirs = opcodes.get(s.offset), opcode(s.text)
        if ours is None and 0 <= s.offset <= max(opcodes, default=0):
            return f"{NAMES_OTHERS}: {theirs or 'one'} at {s.offset:#x}, where it has none"
        if ours and theirs and _base(ours) != _base(theirs):
            return f"{NAMES_OTHERS}: {theirs} at {s.offset:#x}, where it has {ours}"
    return ""


def _base(opcode: str) -> str:
    return opcode.partition(".")[0]


def _conflicts(m: Metrics) -> BankConflicts | None:
    counts = [m.number(f"{CONFLICTS}{of}.sum") for of in ("_op_ld", "_op_st", "")]
    loads, stores, all_of_them, passes = *counts, m.number(PASSES)
    if loads is None or stores is None or all_of_them is None or passes is None:
        return None
    return BankConflicts(loads, stores, all_of_them / passes if passes else 0.0)


def _speed_of_light(m: Metrics) -> dict[str, float]:
    """Unit -> share of its peak. What is read and what is written are of one peak: together they are that of both."""
    shares = {unit: s for unit, names in PEAKS.items() if (s := m.share(*names)) is not None}
    read, written = (None, None) if "dram" in shares else (m.share(READ + OF_PEAK), m.share(WRITTEN + OF_PEAK))
    return shares if read is None or written is None else shares | {"dram": read + written}


def _moved(m: Metrics, nanoseconds: float) -> float | None:
    """Bytes through device memory: read and written, or else what both were in a second, for as long as it took."""
    read, written = m.number(READ), m.number(WRITTEN)
    if read is not None and written is not None:
        return read + written
    rate = m.number(MOVED)
    return None if rate is None else rate * nanoseconds / 1e9
