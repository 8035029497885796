"""Where the values of a kernel's TTGIR come from: whose memory an operation touches, what a condition has read.

Follows values through every operation; through loops, branches and warp-specialized regions by position. A dependence
means "may": offsets, masks and counts are not computed. Addresses that were numbers, as those that a kernel loads
from memory, and called functions are not followed: such an operation may touch anything.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pgo_agent.sandbox.ttgir.tree import Argument, Block, Module, Op

ANYTHING = -1  # in place of an argument: any memory
READS = frozenset(
    {
        "tt.load",
        "tt.descriptor_load",
        "tt.descriptor_gather",
        "ttg.async_copy_global_to_local",
        "ttng.async_tma_copy_global_to_local",
        "ttng.async_tma_gather",
    }
)
ATOMICS = frozenset({"tt.atomic_rmw", "tt.atomic_cas"})
STORES = frozenset({"tt.store", "tt.descriptor_store", "tt.descriptor_scatter"})
TMA_STORES = frozenset({"ttng.async_tma_copy_local_to_global", "ttng.async_tma_scatter"})
TMA_REDUCES = frozenset({"tt.descriptor_reduce", "ttng.async_tma_reduce"})
_WRITES = STORES | TMA_STORES | TMA_REDUCES
_IN_ASSEMBLY = re.compile(r"\b(ld|st|red|atom|cp|multimem|prefetch)\b")
Path = tuple[tuple[int, int], ...]  # for each enclosing operation: its identity, and the index of the region


@dataclass(frozen=True)
class Touch:
    """An operation on global memory."""

    op: Op
    roots: frozenset[int]  # positions of the arguments whose memory it may touch
    reads: bool
    writes: bool
    numbered: bool = False  # whether its address was a number, from memory or an argument


class Flow:
    """The values of one kernel."""

    def __init__(self, module: Module) -> None:
        self.order: list[Op] = []  # in the order of the text
        self.paths: dict[int, Path] = {}  # by the identity of an operation
        self.places: dict[int, int] = {}  # in that order
        self.operands: dict[int, list[int]] = {}  # its values, as numbers
        self._sources: list[set[int]] = []  # of each value
        self._made: dict[int, int] = {}  # value -> the identity of the operation that gives it
        self._read: dict[int, Op] = {}  # value -> the operation that got it from memory
        self._roots: dict[int, int] = {}  # value -> which argument it is
        self._numbers = set[int]()  # pointers that were made of numbers
        kernel, scope = module.kernel, {}
        for n, argument in enumerate(kernel.defined):
            scope[argument.name] = self._value()
            if "ptr<" in argument.type or "tensordesc" in argument.type:
                self._roots[scope[argument.name]] = n
        for block in kernel.regions[0].blocks:
            for a in block.arguments:
                scope.setdefault(a.name, self._value())
            self._block(block, scope, ())

    # questions --------------------------------------------------------------------------------------------------------

    def touches(self) -> Iterator[Touch]:
        """Give all operations on global memory, in the order of the text."""
        for op in self.order:
            if op.name in READS | ATOMICS | _WRITES:
                first = self.operands[id(op)][:1]
                numbered = not self._numbers.isdisjoint(self._back(first))
                yield Touch(op, self.roots(first), op.name not in _WRITES, op.name not in READS, numbered)
            elif op.name == "tt.call":
                yield Touch(op, frozenset({ANYTHING}), True, True)
            elif _touching_assembly(op) and (roots := self.roots(self.operands[id(op)])):
                yield Touch(op, roots, True, True)

    def roots(self, values: Iterable[int]) -> frozenset[int]:
        """Return the arguments into whose memory these values may point."""
        unknown = self._numbers | self._read.keys()
        roots = {self._roots.get(v, ANYTHING if v in unknown else None) for v in self._back(values)}
        return frozenset(r for r in roots if r is not None)

    @property
    def stored(self) -> list[int]:
        """The places, among the arguments that are pointers or descriptors, of those that the kernel may write through.

        What the text leaves unclear may be written through any of them.
        """
        return self.reached(frozenset[int]().union(*(t.roots for t in self.touches() if t.writes)))

    def reached(self, roots: frozenset[int]) -> list[int]:
        """Return the places, among the same, of those that are among these roots, or all for ANYTHING."""
        return [n for n, root in enumerate(self._roots.values()) if {root, ANYTHING} & roots]

    @property
    def loaded(self) -> list[int]:
        """The places, among the same, of those that an operation reads which can touch no other."""
        read = {t.roots for t in self.touches() if t.reads}
        return [n for n, root in enumerate(self._roots.values()) if frozenset({root}) in read]

    @property
    def pointers(self) -> int:
        """How many arguments of the kernel are pointers or descriptors."""
        return len(self._roots)

    def read_for(self, values: Iterable[int]) -> list[Op]:
        """Return the reads of memory that these values are computed from."""
        return [self._read[v] for v in self._back(values, True) if v in self._read]

    def needed(self, ops: Iterable[int]) -> set[int]:
        """Return the identities of these operations and of all that they depend on, back to memory."""
        values = self._back((v for op in ops for v in self.operands[op]), True)
        return {*ops, *(self._made[v] for v in values if v in self._made)}

    def _back(self, values: Iterable[int], numbers: bool = False) -> set[int]:
        """Return all values that these depend on, back to memory. Loaded numbers are skipped unless `numbers`."""
        seen: set[int] = set()
        left = list(values)
        while left:
            v = left.pop()
            if v in seen or (not numbers and v in self._read and not self._pointer(v)):
                continue
            seen.add(v)
            left += () if v in self._read else self._sources[v]
        return seen

    def _pointer(self, v: int) -> bool:
        return any("ptr<" in t for t in self._read[v].result_types)

    def between(self, first: Op, last: Op) -> list[Op]:
        """Return the operations between two others."""
        return self.order[self.places[id(first)] + 1 : self.places[id(last)]]

    def inside(self, op: Op, held: Op) -> bool:
        """Whether `held` is in a region of `op`."""
        return any(holder == id(op) for holder, _ in self.paths[id(held)])

    def follows(self, op: Op, first: Op) -> bool:
        """Whether `op` always runs after `first`: it comes later, in the same block or deeper."""
        return self.places[id(op)] > self.places[id(first)] and self._within(op, first)

    def _within(self, op: Op, first: Op) -> bool:
        path = self.paths[id(first)]
        return self.paths[id(op)][: len(path)] == path

    def apart(self, a: Op, b: Op) -> bool:
        """Whether the two are in different ways of one branch."""
        pairs = zip(self.paths[id(a)], self.paths[id(b)], strict=False)
        return any(x[0] == y[0] and x[1] != y[1] for x, y in pairs)

    # reading ----------------------------------------------------------------------------------------------------------

    def _value(self, *sources: int) -> int:
        self._sources.append(set(sources))
        return len(self._sources) - 1

    def _block(self, block: Block, scope: dict[str, int], path: Path) -> list[int]:
        """Read a block; return the operands of its last operation."""
        values: list[int] = []
        for op in block.ops:
            values = [scope[v] if v in scope else self._value() for v in op.operands]
            self.places[id(op)] = len(self.order)
            self.order.append(op)
            self.paths[id(op)], self.operands[id(op)] = path, values
            results = self._regions(op, values, scope, path) if op.regions else []
            for n, name in enumerate(op.results):
                scope[name] = self._value(*(results[n] if n < len(results) else values))
                self._made[scope[name]] = id(op)
                if op.name in READS | ATOMICS:
                    self._read[scope[name]] = op
                if op.name == "tt.int_to_ptr":
                    self._numbers.add(scope[name])
            if op.name == "ttng.tensormap_create" and len(values) > 1:
                self._sources[values[0]].add(values[1])  # the descriptor at the first address is of the second
        return values

    def _regions(self, op: Op, values: list[int], scope: dict[str, int], path: Path) -> list[set[int]]:
        """Read the regions of an operation; return the sources of its results, by position."""
        initial = values[3:] if op.name == "scf.for" else values
        first: list[int] = []  # what the first region begins with
        ends: list[list[int]] = []
        for n, region in enumerate(op.regions):
            for block in region.blocks:
                inner = dict(scope)
                arguments = self._arguments(block.arguments or (op.defined if n == 0 else ()), inner)
                carried = arguments[1:] if op.name == "scf.for" else arguments
                before = ends[0][1:] if op.name == "scf.while" and n else initial
                self._feed(carried, before)
                end = self._block(block, inner, (*path, (id(op), n)))
                if op.name == "scf.for":
                    self._feed(carried, end)
                elif op.name == "scf.while" and n:
                    self._feed(first, end)
                first = first or carried
                ends.append(end)
        if op.name == "scf.while":
            return [{v} for v in ends[0][1:]]
        merged = [set(column) for column in _columns([*ends, initial] if op.name == "scf.for" else ends)]
        return merged if op.name.startswith(("scf.", "ttg.warp_specialize")) else [set(values)] * len(op.results)

    def _arguments(self, arguments: Sequence[Argument], scope: dict[str, int]) -> list[int]:
        for a in arguments:
            scope[a.name] = self._value()
        return [scope[a.name] for a in arguments]

    def _feed(self, into: Sequence[int], sources: Sequence[int]) -> None:
        for value, source in zip(into, sources, strict=False):
            self._sources[value].add(source)


def _columns(rows: list[list[int]]) -> Iterator[list[int]]:
    for n in range(max(map(len, rows), default=0)):
        yield [row[n] for row in rows if n < len(row)]


def _touching_assembly(op: Op) -> bool:
    return "inline_asm" in op.name and any(_IN_ASSEMBLY.search(w) for w in op.words)


def scalar(op: Op) -> bool:
    """Whether an operation is on one address: one thread of a block executes it."""
    return bool(op.operand_types) and not op.operand_types[0].startswith("tensor")


def says(op: Op, what: str) -> bool:
    """Whether an operation is inline assembly that contains `what`."""
    return "inline_asm" in op.name and any(what in word for word in op.words)
