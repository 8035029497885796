"""A kernel in TTGIR: its text is read once, and its blocks are run one after another, in any order.

Relies on `ttgir.reader` for the text. Control flow is that of scf and cf; a region of a reduction is run on whole
tensors at once. A block that waits for another is not modelled: it ends at the deadline.
"""

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from pgo_agent.sandbox.execution import accesses, control, elementwise, shared_memory, tensors, tma
from pgo_agent.sandbox.execution.descriptors import TensorDescriptor
from pgo_agent.sandbox.execution.errors import KernelFault, NotModelled
from pgo_agent.sandbox.execution.launch import Dot, End, Flying, Run, Step, Values, symbol
from pgo_agent.sandbox.execution.memory import Memory
from pgo_agent.sandbox.execution.values import form
from pgo_agent.sandbox.ttgir import reader
from pgo_agent.sandbox.ttgir.tokens import Unreadable, tokens
from pgo_agent.sandbox.ttgir.tree import Block, Op

MEMORY = 1 << 30  # bytes of all values of a kernel, at most
_PROMISED = re.compile(r"(%[\w$.#-]+): [^,{}]*\{[^{}]*tt\.divisibility = (\d+)")
_CARRY = frozenset({  # what may hand on a dot that still flies
    "scf.for", "scf.if", "scf.while", "scf.yield", "scf.condition", "cf.br", "cf.cond_br", "tt.call", "tt.return",
    "ttng.warp_group_dot", "ttng.warp_group_dot_wait", "ttg.warp_specialize", "ttg.warp_yield", "ttg.warp_return",
})  # fmt: skip
_ATOMIC = re.compile(r"atomic|tma_reduce|descriptor_reduce")
_STEPS = control.STEPS | accesses.STEPS | shared_memory.STEPS | tma.STEPS


class Program:
    """A text, ready to be run. Raises NotModelled for one that cannot be read."""

    def __init__(self, text: str) -> None:
        try:
            self.module = reader.parse(text)
        except Unreadable as e:
            raise NotModelled(f"this text ({e})") from e
        self.functions = {symbol(f): f for f in self.module.functions}
        self._prepared: dict[int, list[Step]] = {}
        # No block can wait for another one, and none adds to what others add to.
        self._alone = not any(_ATOMIC.search(op.name) for op in self.module.walk())
        head = self.module.kernel.parts[0]
        self._promised = {n: int(by) for n, by in _PROMISED.findall(head if isinstance(head, str) else "")}
        blocks = {name: [b for r in f.regions for b in r.blocks] for name, f in self.functions.items()}
        self._labels = {name: {_label(b): b for b in listed} for name, listed in blocks.items()}
        if any(len(self._labels[name]) < len(listed) for name, listed in blocks.items()):
            raise NotModelled("this text (two blocks of one name)")
        if sum(_bytes(op) for op in self.module.walk()) > MEMORY:
            raise NotModelled("more memory than a kernel may take here")

    @property
    def parameters(self) -> list[str]:
        """Return the types of the kernel's parameters."""
        return [a.type for a in self.module.kernel.defined]

    def run(
        self,
        memory: Memory,
        grid: tuple[int, int, int],
        given: Sequence[Any],
        order: Iterable[int],
        until: float,
        early: bool = False,
    ) -> None:
        """Run blocks by their linear numbers. `early`: copies are done as soon as may be, and not as late.

        Raises KernelFault and NotModelled, at `until` (time.monotonic) too.
        """

        def ops(block: Block, values: Values) -> End | None:
            return self._run_ops(run, block, values)

        def call(name: str, passed: Sequence[Any]) -> tuple[Any, ...]:
            return self._call(run, self.functions[name], passed)

        for parameter, value in zip(self.module.kernel.defined, given, strict=True):
            by = self._promised.get(parameter.name, 1)
            if by > 1 and not isinstance(value, TensorDescriptor) and int(value) % by:
                raise KernelFault(f"is compiled for an argument that {by} divides, and it does not")
        memory.launch(self._alone)
        run = Run(memory, grid, until, ops, call, early=early)
        for number in order:
            run.barriers.clear()
            run.flying = Flying()
            memory.begin(number)
            run.place = number % grid[0], number // grid[0] % grid[1], number // (grid[0] * grid[1])
            self._call(run, self.module.kernel, given)
            run.flying.wait_stores(0)

    def _call(self, run: Run, function: Op, given: Sequence[Any]) -> tuple[Any, ...]:
        """Return what a function returns."""
        labels = self._labels[symbol(function)]
        values: Values = {a.name: v for a, v in zip(function.defined, given, strict=True)}
        block: Block = function.regions[0].blocks[0]
        while True:
            end = self._run_ops(run, block, values)
            if end is None or not end.to:
                return end.values if end else ()
            block = labels[end.to]
            values |= {a.name: v for a, v in zip(block.arguments, end.values, strict=True)}

    def _run_ops(self, run: Run, block: Block, values: Values) -> End | None:
        """Run a block's ops; return how they ended."""
        steps = self._prepared.get(id(block))
        if steps is None:
            steps = self._prepared[id(block)] = [_step(op) for op in block.ops]
        for step in steps:
            run.tick()
            if (end := step(run, values)) is not None:
                return end
        return None


def _label(block: Block) -> str:
    return next((token.text for token in tokens(block.head) if token.kind == "label"), "")


def _bytes(op: Op) -> int:
    """Return the bytes of an op's results, as far as they are tensors."""
    return sum(math.prod(form(text)[0]) * 8 for text in op.result_types if text.startswith("tensor<"))


def _step(op: Op) -> Step:
    """Return what runs one op."""
    make = _STEPS.get(op.name) or _computed
    return make(op) if op.name in _CARRY else _landed(op, make(op))


def _computed(op: Op) -> Step:
    make = elementwise.OPS.get(op.name) or tensors.OPS.get(op.name)
    if make is None:
        raise NotModelled(f"the operation {op.name[:60]}")
    apply, names = make(op), op.operands
    if len(op.results) == 1:
        (name,) = op.results

        def one(_run: Run, values: Values) -> None:
            values[name] = apply(*[values[n] for n in names])

        return one

    def several(_run: Run, values: Values) -> None:
        values.update(zip(op.results, apply(*[values[n] for n in names]), strict=True))

    return several


def _landed(op: Op, inner: Step) -> Step:
    """Let an op read the values of dots that were waited for. Raises KernelFault for one that still flies."""

    def step(run: Run, values: Values) -> End | None:
        for name in op.operands:
            if isinstance(given := values.get(name), Dot):
                if given.value is None:
                    raise KernelFault("uses a dot that nothing waited for")
                values[name] = given.value
        return inner(run, values)

    return step
