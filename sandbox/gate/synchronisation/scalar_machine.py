"""Executes the numbers of one block of a kernel, until it waits in a loop for memory that others write.

Follows integers, plain floats, addresses and flags in memory, not tensors. Raises `Lost`, with the operation, where a
wait depends on an unknown number.
"""

import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from pgo_agent.sandbox.gate.barriers.terms import INTEGER, apply, integer_result
from pgo_agent.sandbox.gate.synchronisation.finding import called
from pgo_agent.sandbox.ttgir.dataflow import ATOMICS
from pgo_agent.sandbox.ttgir.tree import Block, Module, Op, Region


class Lost(Exception):
    """A wait depends on something unknown; the message says what and where."""


@dataclass(frozen=True)
class Address:
    """The address of an element of an argument's memory; offset None: of some element."""

    storage: int
    offset: int | None


Value: TypeAlias = int | float | Address | None
Scope: TypeAlias = dict[str, Value]


@dataclass
class Memory:
    """The known values of elements in global memory."""

    first: Mapping[int, int]  # storage -> value of all its elements when the launch begins
    held: dict[Address, Value] = field(default_factory=dict)
    blurred: set[int] = field(default_factory=set)  # storages written at unknown offsets
    changed: list[Address] = field(default_factory=list)  # since it was last cleared

    def load(self, at: Value) -> Value:
        if not isinstance(at, Address) or at.offset is None or at.storage in self.blurred:
            return None
        return self.held.get(at, self.first.get(at.storage))

    def store(self, at: Value, value: Value) -> None:
        if not isinstance(at, Address):
            return
        if at.offset is None:
            self.blurred.add(at.storage)
        elif self.load(at) != value:
            self.changed.append(at)
            self.held[at] = value


@dataclass(frozen=True)
class Wait:
    """A turn of a loop in which a block waits."""

    line: int
    seen: tuple[tuple[Address, Value], ...]  # what it read in this turn
    carried: tuple[Value, ...]  # to the next turn

    def over(self, memory: Memory) -> bool:
        """Whether what it read has changed."""
        return any(memory.load(at) != value for at, value in self.seen)


Run: TypeAlias = Generator[Wait, None, list[Value]]


@dataclass
class KernelRun:
    """The state that all blocks of a launch share."""

    module: Module
    memory: Memory
    arguments: Sequence[Value]
    grid: tuple[int, int, int]
    matter: set[int]  # identities of operations that hold waits or touch flags, or decide about those
    left: int  # operations that may still be executed

    def block(self, program: tuple[int, int, int]) -> Run:
        """Run one block to its end; give each turn of a loop in which it waits."""
        run = _Block(self, program)
        names = (a.name for a in self.module.kernel.defined)
        return run.function(self.module.kernel, dict(zip(names, self.arguments, strict=True)))


class _Block:
    def __init__(self, kernel: KernelRun, program: tuple[int, int, int]) -> None:
        self.kernel, self.program = kernel, program
        self.seen: list[tuple[Address, Value]] = []

    def lost(self, op: Op, what: str) -> Lost:
        return Lost(f"{what} of {called(self.kernel.module, op)} is not known")

    def function(self, kernel: Op, scope: Scope) -> Run:
        blocks = kernel.regions[0].blocks
        labels = {m[0]: b for b in blocks if (m := re.search(r"\^\w+", b.head))}
        block = blocks[0]
        while True:
            values, last = (yield from self.block(block, scope)), block.ops[-1]
            if last.name not in ("cf.br", "cf.cond_br"):
                return values
            targets = [labels[t] for t in re.findall(r"\^\w+", str(last))]
            if last.name == "cf.cond_br" and not isinstance(values[0], int):
                raise self.lost(last, "the condition")
            block = targets[not values[0] if last.name == "cf.cond_br" else 0]
            if block.arguments:
                raise self.lost(last, "what is handed on by the jump")

    def block(self, block: Block, scope: Scope) -> Run:
        values: list[Value] = []
        for op in block.ops:
            if id(op) not in self.kernel.matter and op is not block.ops[-1]:
                continue
            self.kernel.left -= 1
            if self.kernel.left < 0:
                raise Lost("more operations than are followed")
            values = [scope.get(v) for v in op.operands]
            results: Sequence[Value] = ()
            if op.regions:
                results = yield from self.regions(op, values, scope)
            else:
                results = [self.plain(op, values)]
            scope.update(zip(op.results, results, strict=False) if results else dict.fromkeys(op.results))
        return values

    # operations with regions ------------------------------------------------------------------------------------------

    def regions(self, op: Op, values: list[Value], scope: Scope) -> Run:
        if id(op) not in self.kernel.matter:
            return []
        if op.name == "scf.if":
            return (yield from self.branch(op, values, scope))
        if op.name == "scf.for":
            return (yield from self.loop(op, values, scope))
        if op.name == "scf.while":
            return (yield from self.wait(op, values, scope))
        raise self.lost(op, "the course")

    def branch(self, op: Op, values: list[Value], scope: Scope) -> Run:
        if not isinstance(values[0], int):
            raise self.lost(op, "the condition")
        taken = op.regions[:1] if values[0] else op.regions[1:]
        return (yield from self.block(_only(taken[0]), scope)) if taken else []

    def loop(self, op: Op, values: list[Value], scope: Scope) -> Run:
        low, high, step, *carried = values
        if not isinstance(low, int) or not isinstance(high, int) or not isinstance(step, int) or step < 1:
            raise self.lost(op, "the number of iterations")
        names = [a.name for a in op.defined]
        for i in range(low, high, step):
            scope.update(zip(names, [i, *carried], strict=True))
            carried = yield from self.block(_only(op.regions[0]), scope)
        return carried

    def wait(self, op: Op, values: list[Value], scope: Scope) -> Run:
        before, after = map(_only, op.regions)
        carried = values
        while True:
            scope.update(zip((a.name for a in op.defined), carried, strict=True))
            self.seen = []
            condition, *passed = yield from self.block(before, scope)
            if not isinstance(condition, int):
                raise self.lost(op, "the condition")
            if not condition:
                return passed
            scope.update(zip((a.name for a in after.arguments), passed, strict=True))
            carried = yield from self.block(after, scope)
            yield Wait(op.line, tuple(self.seen), tuple(carried))

    # operations without -----------------------------------------------------------------------------------------------

    def plain(self, op: Op, values: list[Value]) -> Value:
        kind = op.name
        if kind.startswith("arith."):
            return _arithmetic(op, values)
        if kind in ("tt.get_program_id", "tt.get_num_programs"):
            which = self.program if kind == "tt.get_program_id" else self.kernel.grid
            return which["xyz".index(op.words[0])]
        if kind == "tt.addptr":
            return _moved(values[0], values[1])
        if kind in ("tt.splat", "tt.broadcast", "tt.expand_dims", "ttg.convert_layout"):
            return Address(values[0].storage, None) if isinstance(values[0], Address) else None
        if kind == "tt.bitcast":
            return values[0] if isinstance(values[0], Address) else None
        if kind in ("tt.load", "tt.store", *ATOMICS):
            return self.touch(op, values)
        if kind == "tt.call" and id(op) in self.kernel.matter:
            raise self.lost(op, "the course")
        return None

    def touch(self, op: Op, values: list[Value]) -> Value:
        """Execute a load, store or atomic; return its result."""
        memory, at = self.kernel.memory, values[0]
        old = memory.load(at)
        if isinstance(at, Address):
            self.seen.append((at, old))
        if op.name == "tt.load":
            return old
        mask = values[2] if len(values) > 2 and op.name != "tt.atomic_cas" else 1
        if mask == 0:
            return old
        unmasked = mask is not None
        if op.name == "tt.store":
            memory.store(at, values[1] if unmasked else None)
        elif op.name == "tt.atomic_cas":
            changed = None if old is None or values[1] is None else values[2] if old == values[1] else old
            memory.store(at, changed)
        else:
            memory.store(at, _combined(op.words[0], old, values[1]) if unmasked else None)
        return old


def _only(region: Region) -> Block:
    if len(region.blocks) != 1:
        raise Lost("jumps between blocks inside of a loop or branch")
    return region.blocks[0]


def _moved(base: Value, by: Value) -> Value:
    if not isinstance(base, Address):
        return None
    computed = base.offset is not None and isinstance(by, int)
    return Address(
        base.storage, base.offset + by if computed and base.offset is not None and isinstance(by, int) else None
    )


def _combined(kind: str, old: Value, value: Value) -> Value:
    """Return the value that an atomic stores; None: unknown."""
    if kind == "exch":
        return value
    if not isinstance(old, int | float) or not isinstance(value, int | float):
        return None
    if kind in ("add", "fadd"):
        return old + value
    if kind in ("max", "min", "umax", "umin"):
        return max(old, value) if "max" in kind else min(old, value)
    named = {"and": "andi", "or": "ori", "xor": "xori"}
    integers = isinstance(old, int) and isinstance(value, int) and kind in named
    result = apply(named[kind], (int(old), int(value)), 64) if integers else None
    return result if isinstance(result, int) else None


def _arithmetic(op: Op, values: list[Value]) -> Value:
    kind = op.name.removeprefix("arith.")
    type_ = op.result_types[0] if op.result_types else ""
    if kind == "constant":
        return _constant(op, type_)
    if kind == "select":
        return (values[1] if values[0] else values[2]) if isinstance(values[0], int) else None
    if kind == "cmpf":
        return _compared(op, values)
    numbers = tuple(v for v in values if isinstance(v, int))
    result = integer_result(op, numbers) if len(numbers) == len(values) else None
    return result if isinstance(result, int) else None


def _constant(op: Op, type_: str) -> Value:
    word = op.words[0] if op.words else ""
    if word in ("true", "false"):
        return int(word == "true")
    if INTEGER.fullmatch(type_) and re.fullmatch(r"-?\d+", word):
        return int(word)
    return float(word) if re.fullmatch(r"b?f\d+", type_) and re.fullmatch(r"-?\d+\.\d+([eE][+-]?\d+)?", word) else None


def _compared(op: Op, values: list[Value]) -> Value:
    a, b = values[:2]
    if not isinstance(a, int | float) or not isinstance(b, int | float):
        return None
    word = next(iter(op.words), "")
    holds = {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}
    return int(holds[word[1:]]) if word[:1] in ("o", "u") and word[1:] in holds else None
