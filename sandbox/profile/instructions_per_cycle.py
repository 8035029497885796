"""Instructions per cycle of scopes: what the machine code of an instrumented build has between a scope's clock reads,
over the cycles that its records tell.

It is the figure of one warp. A warp issues at most one instruction a cycle, so 1 is the most; an SM has four schedulers
and issues as many as four, from different warps, which is what a profiler's IPC of an SM counts. Relies on the lines of
the instrumented TTGIR, where each record stands on one of its own: what was made of a record is separated from the
code beside it by its line and by what it can be. A few instructions have no line of their own and show the one before.

A count is of the code, nothing is run for it: a scope that waits in a loop, branches or holds several loops has none.
One with a single loop has one for each turn, and the records say how often it turns: those of a scope inside of it, in
the same build or, for a loop of the text, in another one.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile

from pgo_agent.sandbox.json_codec import Record
from pgo_agent.sandbox.profile import instruction_path, memo, nvidia, sass
from pgo_agent.sandbox.profile.backend import CannotCompile, Instruction, Workbench
from pgo_agent.sandbox.profile.kernel_profile import Missing, ScopeIpc
from pgo_agent.sandbox.profile.nvidia import Listing
from pgo_agent.sandbox.profile.timeline.find_scopes import Kind
from pgo_agent.sandbox.profile.timeline.scope_sets import Scope
from pgo_agent.sandbox.profile.timeline.types import Pass, ScopeTime, Timeline
from pgo_agent.sandbox.ttgir import reader
from pgo_agent.sandbox.ttgir.tree import Module

RECORDS = frozenset({"integer", "move", "spill"})  # kinds of what a record needs, beside its store
STORES = frozenset({"STG", "STS"})
TELLING = frozenset({"tensor", "special", "global"})  # kinds that stay in their scope, and no record has but its store


@dataclass(frozen=True)
class Count(Record):
    """Machine instructions that one warp issues in one execution of a scope, without those of the scope's records.

    The records of scopes inside of it are counted, as their time is in its cycles.
    """

    scope: str  # its name
    once: dict[str, int]  # opcode without modifiers -> how often outside of its loop
    turn: dict[str, int]  # in each turn of its loop; {} where it has none
    inside: tuple[str, ...]  # scopes of the same build that a turn executes once
    why: str  # why there is no count; empty where there is one

    def instructions(self, turns: float) -> float:
        """Return the instructions of an execution in which its loop turns `turns` times."""
        return sum(self.once.values()) + turns * sum(self.turn.values())


@dataclass(frozen=True)
class Counts(Record):
    """The counts of one instrumented build."""

    build: str  # key
    scopes: tuple[Count, ...]  # all that it records, in the order of the text
    problem: str  # why there are none


@dataclass(frozen=True)
class _Recorded:
    """A scope in an instrumented text: the lines of its records."""

    name: str
    start: int
    end: int


def counts(bench: Workbench, builds: Iterable[str]) -> tuple[Counts, ...]:
    """Return the counts of instrumented builds, by their keys. Raises what the compiler's box raises."""
    return memo.parallel([partial(instructions, bench, b) for b in builds], bench.builder.cores)


@memo.kept("pgo_agent.sandbox.profile.instructions_per_cycle.instructions", version=1)
def instructions(bench: Workbench, build: str) -> Counts:
    """Return what the scopes of an instrumented build (its key) execute. Raises what the compiler's box raises."""
    try:
        listing = nvidia.listing(bench, build)
    except CannotCompile as e:
        return Counts(build, (), str(e))
    return Counts(build, _counted(listing), "")


def ipc(counted: Sequence[Counts], timeline: Timeline) -> tuple[ScopeIpc, ...] | Missing:
    """Return the instructions per cycle of one warp, for every scope that has a count and a time; by the P50 of the
    least disturbed build that has both.

    Scopes that hold others are those of the build with its records. Counts belong to the pass of the same build.
    """
    every = {s.scope: s for c in counted for s in c.scopes}
    by_scope: dict[str, ScopeIpc] = {}
    for build in sorted(timeline.passes, key=lambda p: p.overhead):
        of = {s.scope: s for c in counted if c.build == build.build for s in c.scopes}
        pairs = [(of[s.scope.name], s) for s in build.timed.scopes if s.scope.name in of]
        rates = (_rate(count, s, _turns(count, s, build, every, timeline)) for count, s in pairs)
        by_scope = {r.scope: r for r in rates if r} | by_scope
    listed = tuple(by_scope[s.scope.name] for s in timeline.scopes if s.scope.name in by_scope)
    return listed or Missing("ipc", _why(counted, timeline))


def _rate(count: Count, timed: ScopeTime, turns: float | None) -> ScopeIpc | None:
    """None where the count, the turns or the cycles are not known, and for an empty scope."""
    if count.why or turns is None:
        return None
    executed, cycles = count.instructions(turns), timed.cycles.p50
    return ScopeIpc(count.scope, executed, cycles, executed / cycles) if executed and cycles > 0 else None


def _turns(count: Count, timed: ScopeTime, build: Pass, every: Mapping[str, Count], timeline: Timeline) -> float | None:
    """Of a scope's loop in one execution: a record inside of it is made in each. None where none was, or some are lost.

    Both numbers are those in the middle over blocks and warps, so of blocks that turn differently it is a middle, too.
    """
    if not count.turn:
        return 0.0
    inner = [s for s in build.timed.scopes if s.scope.name in count.inside]
    passes_of = (build,) if inner else timeline.passes
    inner = inner or _inside(count, timed.scope, every, timeline)
    if not inner or not timed.count or any(p.timed.lost.overwritten for p in passes_of):
        return None
    return max(s.count for s in inner) / timed.count


def _inside(count: Count, loop: Scope, every: Mapping[str, Count], timeline: Timeline) -> list[ScopeTime]:
    """Return the scopes right inside of a loop of the text, whichever build recorded them.

    None unless the machine's loop has the tensor instructions, special functions and loads of these together: then it
    was not unrolled, and its turns are the text's.
    """
    if loop.kind is not Kind.LOOP:
        return []
    later = (s for s in timeline.scopes if s.scope.role == loop.role and s.scope.first > loop.first)
    inner = [s for s in takewhile(lambda s: s.scope.depth > loop.depth, later) if s.scope.depth == loop.depth + 1]
    together = Counter[str]()
    for s in inner:
        together.update(every[s.scope.name].once if s.scope.name in every else {})
    telling = {o for o in count.turn if sass.kind(o) in TELLING and o not in STORES}
    return inner if telling and all(count.turn[o] == together[o] for o in telling) else []


def _why(counted: Sequence[Counts], timeline: Timeline) -> str:
    if not timeline.scopes:
        return "no scope was timed"
    problem = next((c.problem for c in counted if c.problem), "")
    refused = next((f"{s.scope}: {s.why}" for c in counted for s in c.scopes if s.why), "")
    return problem or refused or "no instrumented build of this timeline was disassembled"


# counting -------------------------------------------------------------------------------------------------------------


def _counted(listing: Listing) -> tuple[Count, ...]:
    recorded = _recorded(reader.parse(listing.ttgir))
    code, reads = listing.instructions, sass.clock_reads(listing.sass)
    at: dict[int, list[int]] = {}  # line of a record -> its clock reads, by index
    for i, instruction in enumerate(code):
        if instruction.address in reads:
            at.setdefault(instruction.line, []).append(i)
    return tuple(_count(code, at, recorded, r) for r in recorded)


def _recorded(module: Module) -> tuple[_Recorded, ...]:
    """Return the scopes of a text, in the order of their begins."""
    lines: dict[tuple[str, str], int] = {}
    for op in module.walk():
        if op.name == "proton.record":
            edge, name = op.words
            lines[edge, name.strip('"')] = op.line
    return tuple(_Recorded(name, line, lines["end", name]) for (edge, name), line in lines.items() if edge == "start")


def _count(code: Sequence[Instruction], at: dict[int, list[int]], every: Iterable[_Recorded], r: _Recorded) -> Count:
    """The compiler may have copied a scope; it has a count where all of its copies have the same."""
    stretches = [instruction_path.between(code, begin, at.get(r.end, ())) for begin in at.get(r.start, ())]
    inner = {line for o in every if r.start < o.start and o.end < r.end for line in (o.start, o.end)}
    record_lines = {line for o in every for line in (o.start, o.end)} - inner
    mixes = [(_opcodes(code, s.once, record_lines), _opcodes(code, s.turn, record_lines)) for s in stretches]
    why = next((s.why for s in stretches if s.why), "" if stretches else "its clock reads are not in the code")
    if not why and any(m != mixes[0] for m in mixes):
        why = f"the compiler made {len(stretches)} copies of it that differ"
    if why:
        return Count(r.name, {}, {}, (), why)
    turned = set(stretches[0].turn)
    inside = tuple(o.name for o in every if len(at.get(o.start, ())) == 1 and turned.issuperset(at[o.start]))
    return Count(r.name, *mixes[0], inside, "")


def _opcodes(code: Sequence[Instruction], executed: Iterable[int], records: set[int]) -> dict[str, int]:
    counted = (code[i] for i in executed if not (code[i].line in records and _may_record(code[i])))
    return dict(Counter(i.opcode.partition(".")[0] for i in counted))


def _may_record(instruction: Instruction) -> bool:
    """Return whether an instruction can be one of a record's: arithmetic of its address, its words and its store."""
    return sass.kind(instruction.opcode) in RECORDS or instruction.opcode.partition(".")[0] in STORES
