"""A kernel in TTIR: its text is read once, and its blocks are run one after another, in any order.

Relies on `ttgir.reader` for the text. Control flow is that of scf and cf; a region of a reduction is run on whole
tensors at once. A block that waits for another is not modelled: it ends at the deadline.
"""

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from pgo_agent.sandbox.ttgir import reader
from pgo_agent.sandbox.ttgir.tokens import Unreadable
from pgo_agent.sandbox.ttgir.tree import Block, Op
from pgo_agent.sandbox.ttir import descriptors, elementwise, hints, tensors
from pgo_agent.sandbox.ttir.errors import NotModelled
from pgo_agent.sandbox.ttir.memory import Memory
from pgo_agent.sandbox.ttir.values import dtype, form, signed, unsigned

Values = dict[str, Any]
Step = Callable[["_Run", Values], "_End | None"]
_LABEL = re.compile(r"\^\w+")
_BRANCH = re.compile(r"(\^\w+)(?:\(([^)]*)\))?")
_AXES = {"x": 0, "y": 1, "z": 2}
_NOTHING = frozenset({"gpu.barrier", "ttg.barrier", "tt.assert", "tt.print"})


@dataclass(frozen=True)
class _End:
    """How a list of ops ended: with values for what is around it, or with a branch."""

    values: tuple[Any, ...]
    to: str = ""  # a label
    more: bool = True  # of scf.condition: whether the loop goes on


class _Run:
    """One launch."""

    def __init__(self, program: "Program", memory: Memory, grid: tuple[int, int, int], until: float) -> None:
        self.program, self.memory, self.grid, self.until = program, memory, grid, until
        self.place = (0, 0, 0)

    def tick(self) -> None:
        if time.monotonic() > self.until:
            raise NotModelled("a run that ends in time")


class Program:
    """A text, ready to be run. Raises NotModelled for one that cannot be read."""

    def __init__(self, text: str) -> None:
        try:
            self.module = reader.parse(text)
        except Unreadable as e:
            raise NotModelled(f"this text ({e})") from e
        self.functions = {_symbol(f): f for f in self.module.functions}
        self._prepared: dict[int, list[Step]] = {}

    @property
    def parameters(self) -> list[str]:
        """Return the types of the kernel's parameters."""
        return [a.type for a in self.module.kernel.defined]

    def run(
        self, memory: Memory, grid: tuple[int, int, int], given: Sequence[Any], order: Iterable[int], until: float
    ) -> None:
        """Run blocks by their linear numbers. Raises KernelFault and NotModelled, at `until` (time.monotonic) too."""
        run = _Run(self, memory, grid, until)
        for number in order:
            run.place = number % grid[0], number // grid[0] % grid[1], number // (grid[0] * grid[1])
            self.call(run, self.module.kernel, given)

    def call(self, run: _Run, function: Op, given: Sequence[Any]) -> tuple[Any, ...]:
        """Return what a function returns."""
        blocks = function.regions[0].blocks
        labels = {_LABEL.search(b.head)[0]: b for b in blocks if b.head and _LABEL.search(b.head)}  # type: ignore[index]
        values: Values = {a.name: v for a, v in zip(function.defined, given, strict=True)}
        block: Block = blocks[0]
        while True:
            run.tick()
            end = self.run_ops(run, block, values)
            if end is None or not end.to:
                return end.values if end else ()
            block = labels[end.to]
            values |= {a.name: v for a, v in zip(block.arguments, end.values, strict=True)}

    def run_ops(self, run: _Run, block: Block, values: Values) -> _End | None:
        """Run a block's ops; return how they ended."""
        steps = self._prepared.get(id(block))
        if steps is None:
            steps = self._prepared[id(block)] = [_step(op) for op in block.ops]
        for step in steps:
            if (end := step(run, values)) is not None:
                return end
        return None


def _symbol(function: Op) -> str:
    return next((w for w in function.words if w.startswith("@")), "").strip('@"')


def _step(op: Op) -> Step:
    """Return what runs one op."""
    if op.name in _STEPS:
        return _STEPS[op.name](op)
    make = elementwise.OPS.get(op.name) or tensors.OPS.get(op.name)
    if make is None:
        raise NotModelled(f"the operation {op.name[:60]}")
    apply, names = make(op), op.operands
    if len(op.results) == 1:
        (name,), test = op.results, hints.kept(op)

        def one(_run: _Run, values: Values) -> None:
            values[name] = apply(*[values[n] for n in names])
            if test is not None:
                test(values[name])

        return one

    def several(_run: _Run, values: Values) -> None:
        values.update(zip(op.results, apply(*[values[n] for n in names]), strict=True))

    return several


# control flow ---------------------------------------------------------------------------------------------------------


def _returns(op: Op) -> Step:
    return lambda _run, values: _End(tuple(values[n] for n in op.operands))


def _branches(op: Op) -> Step:
    targets = [(label, re.findall(r"%[\w#.]+", inner.partition(":")[0])) for label, inner in _BRANCH.findall(str(op))]
    conditional = op.name == "cf.cond_br"

    def step(_run: _Run, values: Values) -> _End:
        chosen = targets[0 if not conditional or bool(values[op.operands[0]]) else 1]
        return _End(tuple(values[n] for n in chosen[1]), chosen[0])

    return step


def _condition(op: Op) -> Step:
    first, *rest = op.operands
    return lambda _run, values: _End(tuple(values[n] for n in rest), more=bool(values[first]))


def _for(op: Op) -> Step:
    low, high, by, *initial = op.operands
    counter, *carried = op.defined
    body = op.regions[0].blocks[0]
    without_sign = "unsigned" in op.words

    def step(run: _Run, values: Values) -> None:
        at = [values[n] for n in initial]
        bounds = [int(unsigned(values[n])) if without_sign else int(values[n]) for n in (low, high, by)]
        for i in range(*bounds):
            run.tick()
            values[counter.name] = torch.tensor(i, dtype=values[low].dtype)
            values.update((a.name, v) for a, v in zip(carried, at, strict=True))
            end = run.program.run_ops(run, body, values)
            at = list(end.values) if end else []
        values.update(zip(op.results, at, strict=True))

    return step


def _if(op: Op) -> Step:
    regions = op.regions

    def step(run: _Run, values: Values) -> None:
        taken = 0 if bool(values[op.operands[0]]) else 1
        end = run.program.run_ops(run, regions[taken].blocks[0], values) if taken < len(regions) else None
        values.update(zip(op.results, end.values if end else (), strict=True))

    return step


def _while(op: Op) -> Step:
    before, after = (r.blocks[0] for r in op.regions)
    carried = op.defined

    def step(run: _Run, values: Values) -> None:
        at = [values[n] for n in op.operands]
        while True:
            run.tick()
            values.update((a.name, v) for a, v in zip(carried, at, strict=True))
            end = run.program.run_ops(run, before, values)
            if end is None or not end.more:
                values.update(zip(op.results, end.values if end else (), strict=True))
                return
            values.update((a.name, v) for a, v in zip(after.arguments, end.values, strict=True))
            done = run.program.run_ops(run, after, values)
            at = list(done.values) if done else []

    return step


def _calls(op: Op) -> Step:
    symbol = next((w for w in op.words if w.startswith("@")), "").strip('@"')

    def step(run: _Run, values: Values) -> None:
        function = run.program.functions[symbol]
        values.update(zip(op.results, run.program.call(run, function, [values[n] for n in op.operands]), strict=True))

    return step


def _head(op: Op) -> str:
    first = op.parts[0]
    return first if isinstance(first, str) else ""


# launches and memory --------------------------------------------------------------------------------------------------


def _program_id(op: Op) -> Step:
    axis, (name,) = _AXES[op.words[0]], op.results
    of_grid = op.name == "tt.get_num_programs"

    def step(run: _Run, values: Values) -> None:
        values[name] = torch.tensor((run.grid if of_grid else run.place)[axis], dtype=torch.int32)

    return step


def _load(op: Op) -> Step:
    _, element = form(op.result_types[0])
    kind, (name,) = dtype(element), op.results
    if op.operand_types and op.operand_types[0].startswith("!tt.ptr<tensor"):
        raise NotModelled("a pointer to a block")

    def step(run: _Run, values: Values) -> None:
        values[name] = run.memory.load(values[op.operands[0]], kind, *(values[n] for n in op.operands[1:]))

    return step


def _store(op: Op) -> Step:
    if op.operand_types and op.operand_types[0].startswith("!tt.ptr<tensor"):
        raise NotModelled("a pointer to a block")
    return lambda run, values: run.memory.store(*[values[n] for n in op.operands])


_RMW: dict[str, Callable[[Any, Any], Any]] = {
    "add": torch.add, "fadd": torch.add, "and": torch.bitwise_and, "or": torch.bitwise_or, "xor": torch.bitwise_xor,
    "max": torch.maximum, "min": torch.minimum, "exch": lambda _old, new: new,
    "umax": lambda a, b: signed(np.maximum(unsigned(a), unsigned(b)), a.dtype),
    "umin": lambda a, b: signed(np.minimum(unsigned(a), unsigned(b)), a.dtype),
}  # fmt: skip


def _atomic(op: Op) -> Step:
    compute = _RMW.get(op.words[0])
    if compute is None:
        raise NotModelled(f"the atomic operation {op.words[0][:20]}")
    at, given, *mask = op.operands
    (name,) = op.results or ("",)

    def step(run: _Run, values: Values) -> None:
        value = values[given]
        masked = values[mask[0]] if mask else None
        values[name] = run.memory.change(values[at], masked, value.dtype, [value], compute)

    return step


def _swap(op: Op) -> Step:
    at, wanted, new = op.operands

    def step(run: _Run, values: Values) -> None:
        given = [values[wanted], values[new]]
        was = run.memory.change(
            values[at], None, given[1].dtype, given, lambda old, w, n: torch.where(old == w, n, old)
        )
        if op.results:
            values[op.results[0]] = was

    return step


def _descriptor(op: Op) -> Step:
    def step(run: _Run, values: Values) -> None:
        given = [values[n] for n in op.operands]
        if op.name == "tt.make_tensor_descriptor":
            values[op.results[0]] = descriptors.make(op, given)
        elif op.name == "tt.descriptor_load":
            values[op.results[0]] = descriptors.load(op, run.memory, given)
        else:
            descriptors.store(op, run.memory, given)

    return step


# regions of reductions ------------------------------------------------------------------------------------------------


def _combined(op: Op) -> Step:
    axis = op.integer("axis") or 0
    reverse = bool(op.integer("reverse"))
    region = op.regions[0].blocks[0]
    names = [a.name for a in region.arguments]

    def step(run: _Run, values: Values) -> None:
        def combine(first: list[Any], second: list[Any]) -> list[Any]:
            inner = values | dict(zip(names, [*first, *second], strict=True))
            end = run.program.run_ops(run, region, inner)
            return list(end.values) if end else []

        given = [values[n] for n in op.operands]
        out = (
            tensors.reduced(given, axis, combine)
            if op.name == "tt.reduce"
            else tensors.scanned(given, axis, reverse, combine)
        )
        values.update(zip(op.results, out, strict=True))

    return step


def _mapped(op: Op) -> Step:
    region = op.regions[0].blocks[0]

    def step(run: _Run, values: Values) -> None:
        inner = values | dict(zip([a.name for a in region.arguments], [values[n] for n in op.operands], strict=True))
        end = run.program.run_ops(run, region, inner)
        values.update(zip(op.results, end.values if end else (), strict=True))

    return step


def _assume(op: Op) -> Step:
    return lambda _run, values: hints.assumed(values[op.operands[0]])


def _nothing(_op: Op) -> Step:
    return lambda _run, _values: None


_STEPS: dict[str, Callable[[Op], Step]] = {
    **dict.fromkeys(
        ("tt.return", "scf.yield", "tt.reduce.return", "tt.scan.return", "tt.map_elementwise.return"), _returns
    ),
    "cf.br": _branches,
    "cf.cond_br": _branches,
    "scf.condition": _condition,
    "scf.for": _for,
    "scf.if": _if,
    "scf.while": _while,
    "tt.call": _calls,
    "tt.get_program_id": _program_id,
    "tt.get_num_programs": _program_id,
    "tt.load": _load,
    "tt.store": _store,
    "tt.atomic_rmw": _atomic,
    "tt.atomic_cas": _swap,
    **dict.fromkeys(
        ("tt.make_tensor_descriptor", "tt.descriptor_load", "tt.descriptor_store", "tt.descriptor_reduce"), _descriptor
    ),
    "tt.reduce": _combined,
    "tt.scan": _combined,
    "tt.map_elementwise": _mapped,
    "llvm.intr.assume": _assume,
    **dict.fromkeys(_NOTHING, _nothing),
}
