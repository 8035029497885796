"""Puts the static profile of a compiled kernel together: counts by line, loops, conversions, accesses.

Pure: a compiled kernel in, a profile out. See `static_profile.py` for what the fields mean.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from pgo_agent.sandbox.compiler import static
from pgo_agent.sandbox.profile import line_map, machine_loops, ttgir_cost
from pgo_agent.sandbox.profile.backend import Backend, Compiled, Instruction
from pgo_agent.sandbox.profile.line_map import NOWHERE, SourceLocation
from pgo_agent.sandbox.profile.static_profile import Access, Conversion, Line, MachineLoop, Peak, Pipeline
from pgo_agent.sandbox.profile.ttgir_cost import Span
from pgo_agent.sandbox.ttgir import reader
from pgo_agent.sandbox.ttgir.tree import Module

COVERED = 0.9  # of the instructions that any loop of the TTGIR accounts for, that the one chosen must account for
_WAIT = "ttng.wait_barrier"


@dataclass(frozen=True)
class Look:
    """The static facts of one compiled kernel. Raises Unreadable for a TTGIR that Triton did not print."""

    backend: Backend
    compiled: Compiled

    @cached_property
    def module(self) -> Module:
        return reader.parse(self.compiled.ttgir)

    @cached_property
    def ops(self) -> dict[int, str]:
        """TTGIR line -> name of its op."""
        return {op.line: op.name for op in self.module.walk()}

    @cached_property
    def places(self) -> dict[int, SourceLocation]:
        return line_map.places(self.compiled.ttgir, self.compiled.located)

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        return ttgir_cost.spans(self.module)

    @cached_property
    def file(self) -> str:
        """The file that the kernel stands in."""
        return self.places.get(self.module.kernel.line, NOWHERE).file

    @cached_property
    def by_line(self) -> dict[int, list[Instruction]]:
        """TTGIR line -> its instructions."""
        instructions = defaultdict[int, list[Instruction]](list)
        for i in self.compiled.instructions:
            instructions[i.line].append(i)
        return dict(instructions)

    def source(self, line: int) -> int:
        """Return the line of the kernel's file that a line of the TTGIR comes from; 0 where unknown."""
        return self.places.get(line, NOWHERE).line(self.file)

    def kinds(self, instructions: Iterable[Instruction]) -> dict[str, int]:
        return dict(Counter(self.backend.kind(i.opcode) for i in instructions))

    # parts of the report ----------------------------------------------------------------------------------------------

    def lines(self) -> tuple[Line, ...]:
        """Return the counts by line of the TTGIR."""
        return tuple(
            self._line(line, self.ops.get(line, ""), self.places.get(line), instructions)
            for line, instructions in sorted(self.by_line.items())
        )

    def sources(self) -> tuple[Line, ...]:
        """Return the counts by line of the kernel's file; nothing where no line of it is known."""
        by_source = defaultdict[int, list[Instruction]](list)
        for line, instructions in self.by_line.items():
            by_source[self.source(line)] += instructions
        return tuple(self._line(n, "", None, part) for n, part in sorted(by_source.items())) if self.file else ()

    def _line(self, line: int, op: str, place: SourceLocation | None, instructions: Sequence[Instruction]) -> Line:
        return Line(
            line, op, place, len(instructions), self.kinds(instructions), opcodes(instructions), most_live(instructions)
        )

    def peak(self) -> Peak | None:
        live = [i.live or 0 for i in self.compiled.instructions]
        if not any(live):
            return None
        at = live.index(max(live))
        i = self.compiled.instructions[at]
        loop = ttgir_cost.around(i.line, self.spans)
        return Peak(live[at], at, i.opcode, i.line, self.source(i.line), loop)

    def loops(self) -> tuple[MachineLoop, ...]:
        """Return outer loops before those inside of them."""
        bodies = [frozenset(body) for body in machine_loops.loops(self.compiled.instructions)]
        matched = dict[frozenset[int], Span | None]()
        for body in reversed(bodies):  # inner loops first: an outer one is not of the same scf.for
            inner = [matched[b] for b in matched if b < body]
            matched[body] = None if self._waits(body) else self._span(body, [s for s in inner if s])
        return tuple(self._loop(body, matched[body], sum(body < other for other in bodies)) for body in bodies)

    def _span(self, body: frozenset[int], inside: Sequence[Span]) -> Span | None:
        """Return the smallest loop of the TTGIR around those inside that accounts for nearly all that any accounts
        for."""
        lines = [self.compiled.instructions[i].line for i in body]
        share = {s: sum(line in s for line in lines) for s in self.spans}
        outer = [s for s in self.spans if share[s] and all(i.first in s and i != s for i in inside)]
        enough = COVERED * max((share[s] for s in outer), default=0)
        return min((s for s in outer if share[s] >= enough), key=lambda s: s.last - s.first, default=None)

    def _waits(self, body: frozenset[int]) -> bool:
        return all(self.ops.get(self.compiled.instructions[i].line) == _WAIT for i in body)

    def _loop(self, body: frozenset[int], span: Span | None, depth: int) -> MachineLoop:
        code = [self.compiled.instructions[i] for i in sorted(body)]
        waits = self._waits(body)
        of = {i.line for i in code} if waits else {line for line in self.ops if span and line in span}
        sources = [n for line in of if (n := self.source(line))]
        return MachineLoop(
            first=min(body),
            depth=depth,
            instructions=len(code),
            kinds=self.kinds(code),
            opcodes=opcodes(code),
            ttgir=min(of) if waits else span.first if span else 0,
            source=(min(sources, default=0), max(sources, default=0)),
            live=most_live(code),
            waits=waits,
        )

    def pipeline(self) -> Pipeline:
        facts = static.from_ttgir(self.compiled.ttgir)
        return Pipeline(
            depth=facts["pipeline_depth"],
            pendings=tuple(p for p in facts["dot_waits"] if p is not None),
            dots=facts["dots"],
            async_copies=facts["async_copies"],
            warp_specialized=facts["warp_specialized"],
            requested=ttgir_cost.requested_registers(self.module),
        )

    def conversions(self) -> tuple[Conversion, ...]:
        return tuple(self._conversion(c) for c in ttgir_cost.conversions(self.module))

    def _conversion(self, c: ttgir_cost.Conversion) -> Conversion:
        kinds = self.kinds(self.by_line.get(c.line, ()))
        shared, exchange = kinds.get("shared", 0), kinds.get("exchange", 0)
        other = sum(kinds.values()) - shared - exchange
        loop = ttgir_cost.around(c.line, self.spans)
        return Conversion(c.line, self.source(c.line), loop, c.bytes, shared, exchange, other)

    def accesses(self) -> tuple[Access, ...]:
        return tuple(self._access(m) for m in ttgir_cost.accesses(self.module))

    def _access(self, m: ttgir_cost.Memory) -> Access:
        widths = [w for i in self.by_line.get(m.line, ()) if (w := self.backend.access_bytes(i.opcode))]
        needs = self.compiled.resources
        return Access(
            ttgir=m.line,
            source=self.source(m.line),
            loop=ttgir_cost.around(m.line, self.spans),
            op=m.op,
            bytes=m.bytes,
            element_bytes=m.element_bytes,
            bulk=m.bulk,
            thread_run=m.thread_run,
            warp_run=m.warp_run,
            width=min(widths, default=0),
            instructions=len(widths),
            share=max(m.bytes // (needs.warps * needs.lanes), m.element_bytes),
        )


def opcodes(instructions: Iterable[Instruction]) -> dict[str, int]:
    """Return how often each opcode stands there, without modifiers."""
    return dict(Counter(i.opcode.partition(".")[0] for i in instructions))


def most_live(instructions: Iterable[Instruction]) -> int:
    return max((i.live or 0 for i in instructions), default=0)


def curve(instructions: Iterable[Instruction]) -> tuple[int | None, ...]:
    """Return the live registers at each instruction."""
    return tuple(i.live for i in instructions)
