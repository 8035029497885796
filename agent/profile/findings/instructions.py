"""Findings in the instructions of a kernel: what the compiler made of dots, conversions, indices and atomics.

Relies on the static profile. Each is a share of instructions, not of time: it says what to look at, not what it costs.
"""

from collections.abc import Callable, Collection, Iterator, Sequence

from pgo_agent.agent.profile.findings.defect import Defect, Finding
from pgo_agent.sandbox.profile.static_profile import Counts, Line, MachineLoop, StaticProfile

_SYNCHRONOUS = frozenset({"HMMA", "IMMA", "QMMA"})  # dots of one warp, operands in registers
_ATOMIC = frozenset({"ATOM", "ATOMG", "RED", "REDG"})
_HOPPER = "sm_90"
MANY_ATOMICS = 4  # instructions of one line
LITTLE = 8  # bytes of a tile that are one thread's: below it half of a load's width is lost
SMALL = 8  # a tile of fewer than an eighth of the largest one's bytes is not what a kernel waits for
WIDE = 16  # bytes that one instruction moves for a thread
CONVERTING = 0.15  # of the instructions of a loop with dots
INDEXING, LONG = 0.5, 100  # of the instructions; a text below LONG has too few to tell


def findings(k: StaticProfile) -> Iterator[Finding]:
    """Yield the findings, the usually costliest first."""
    for look in _LOOKS:
        yield from look(k)


def _synchronous(k: StaticProfile) -> Iterator[Finding]:
    count = _of(k.opcodes, _SYNCHRONOUS)
    if k.target == _HOPPER and count:
        text = (
            f"{count} tensor instructions are of one warp each and no wgmma, which needs tiles of 64 rows and 4 warps"
        )
        yield Finding(Defect.SYNCHRONOUS, count, "instructions", _line(k.source, _SYNCHRONOUS), text)


def _converting(k: StaticProfile) -> Iterator[Finding]:
    hot = max((m for m in k.loops if m.kinds.get("tensor")), key=lambda m: (m.depth, m.instructions), default=None)
    count = hot.kinds.get("convert", 0) if hot else 0
    if hot and count >= CONVERTING * hot.instructions:
        text = f"{count} of {hot.instructions} instructions of the loop with the dots convert types"
        yield Finding(Defect.CONVERTING, count, "instructions", _busiest(k, hot, "convert"), text)


def _little(k: StaticProfile) -> Iterator[Finding]:
    most = max((a.bytes for a in k.accesses), default=0)
    wide = (a for a in k.accesses if SMALL * a.bytes >= most)
    for a in (a for a in wide if not k.pipeline.dots and not a.bulk and not a.uncoalesced):
        if 0 < a.width <= a.share < LITTLE and a.bytes >= WIDE * a.share:
            text = f"{a.op} moves {a.share} B of a thread, of {WIDE} that one instruction can: its tile has {a.bytes} B"
            yield Finding(Defect.LITTLE, a.share, "B", a.source, text)


def _atomics(k: StaticProfile) -> Iterator[Finding]:
    count, line = _of(k.opcodes, _ATOMIC), _line(k.source, _ATOMIC)
    if count >= MANY_ATOMICS:
        text = f"{count} atomic instructions, which wait for one another where blocks add to the same place"
        yield Finding(Defect.ATOMICS, count, "instructions", line, text)


def _indexing(k: StaticProfile) -> Iterator[Finding]:
    loop = max((m for m in k.loops if not m.waits), key=lambda m: (m.depth, m.instructions), default=None)
    kinds, total = (loop.kinds, loop.instructions) if loop else (k.kinds, k.instructions)
    count = kinds.get("integer", 0)
    if total >= LONG and count >= INDEXING * total:
        where = "the innermost loop" if loop else "the kernel"
        text = f"{count} of {total} instructions of {where} compute and compare indices"
        yield Finding(Defect.INDEXING, count, "instructions", _busiest(k, loop, "integer"), text)


def _of(opcodes: Counts, wanted: Collection[str]) -> int:
    return sum(n for opcode, n in opcodes.items() if opcode.partition(".")[0] in wanted)


def _line(lines: Sequence[Line], wanted: Collection[str]) -> int:
    """The source line with most of these instructions; 0 where none names one."""
    most = max(lines, key=lambda n: _of(n.opcodes, wanted), default=None)
    return most.line if most and _of(most.opcodes, wanted) else 0


def _busiest(k: StaticProfile, loop: MachineLoop | None, kind: str) -> int:
    """The source line with most instructions of a kind, in a loop or in all of the kernel."""
    low, high = loop.source if loop else (0, 0)
    inside = [n for n in k.source if not high or low <= n.line <= high]
    most = max(inside, key=lambda n: n.kinds.get(kind, 0), default=None)
    return most.line if most and most.kinds.get(kind) else 0


_LOOKS: Sequence[Callable[[StaticProfile], Iterator[Finding]]] = (
    _synchronous,
    _converting,
    _little,
    _atomics,
    _indexing,
)
