"""Follows the integers behind a kernel's addresses for one block of a launch, to find those that overflow.

Every integer is computed twice: cut to its width, as in hardware, and uncut, as it is meant. Where the two differ in a
lane that a load, store or atomic uses, an offset has overflowed. Numbers come from the launch (arguments and grid).
Loaded numbers and floats are unknown, and accesses that depend on them are not followed. Loops are followed iteration
by iteration, up to a budget. Relies on `address_arithmetic.py`.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
from pgo_agent.sandbox.gate.address_arithmetic import Number, Pointer, Value, compute, number
from pgo_agent.sandbox.ttgir.tree import Block, Module, Op

MOST_OPS = 20_000  # executed for one block
_AXES = {"x": 0, "y": 1, "z": 2}
_ACCESSES = {  # operation -> the operand that is the mask, if there is one; the pointer is the first
    "tt.load": 1,
    "tt.store": 2,
    "tt.atomic_rmw": 2,
    "tt.atomic_cas": 3,
    "ttg.async_copy_global_to_local": 2,
}
Frame = dict[str, Value]


@dataclass(frozen=True)
class Overflow:
    """An offset that is used after it overflowed."""

    argument: int  # of the kernel
    meant: int  # elements
    cut: int
    line: int  # of the TTGIR
    access: str  # the operation's name


@dataclass
class Followed:
    """The result of a walk through one block."""

    overflow: Overflow | None = None
    accesses: dict[int, bool] = field(default_factory=dict)  # line -> whether its offsets were known each time


class _Spent(Exception):
    """The budget of operations is spent."""


def follow(module: Module, arguments: Sequence[int | None], grid: Sequence[int], block: Sequence[int]) -> Followed:
    """Walk through the kernel as one block. `arguments`: integers where known, None for pointers and others."""
    walk = _Walk(grid, block)
    frame: Frame = {}
    for n, (argument, value) in enumerate(zip(module.kernel.defined, arguments, strict=True)):
        pointer = argument.type.startswith("!tt.ptr")
        frame[argument.name] = Pointer(n, number(0)) if pointer else None if value is None else number(value)
    everywhere = {op.line: False for f in module.functions for op in f.walk() if op.name in _ACCESSES}
    blocks = module.kernel.regions[0].blocks
    try:
        if len(blocks) == 1:
            walk.run(blocks[0], frame)
    except _Spent:
        walk.seen.accesses.clear()
    walk.seen.accesses = everywhere | walk.seen.accesses
    return walk.seen


class _Walk:
    def __init__(self, grid: Sequence[int], block: Sequence[int]) -> None:
        self.grid, self.block, self.left = grid, block, MOST_OPS
        self.seen = Followed()

    def run(self, block: Block, frame: Frame) -> list[Value]:
        """Execute a block's operations; return the operands of its last one."""
        for op in block.ops:
            values = [frame.get(o) for o in op.operands]
            if op.name in ("scf.yield", "tt.return", "scf.condition"):
                return values
            self.left -= 1
            if self.left < 0:
                raise _Spent
            results = self._results(op, values, frame)
            frame.update(zip(op.results, [*results, *[None] * len(op.results)], strict=False))
        return []

    def _results(self, op: Op, values: list[Value], frame: Frame) -> Sequence[Value]:
        if op.name in _ACCESSES:
            self._access(op, values)
            return ()
        if op.name == "scf.for":
            return self._loop(op, values, frame)
        if op.name == "scf.if":
            return self._branch(op, values, frame)
        if op.regions:
            self._skip(op)
            return ()
        if op.name in ("tt.get_program_id", "tt.get_num_programs"):
            of = self.block if op.name == "tt.get_program_id" else self.grid
            return [number(of[_AXES[op.words[0]]])]
        with np.errstate(all="ignore"), suppress(ValueError, IndexError, TypeError):  # as Triton prints no operation
            return [compute(op, values)]
        return ()

    def _loop(self, op: Op, values: list[Value], frame: Frame) -> Sequence[Value]:
        low, high, step, *carried = values
        names = [a.name for a in op.defined]
        bounds = [int(v.cut) for v in (low, high, step) if isinstance(v, Number) and v.cut.ndim == 0]
        if len(bounds) < 3 or bounds[2] <= 0 or len(op.regions[0].blocks) != 1:
            self._skip(op)
            return ()
        for i in range(*bounds):
            frame.update(zip(names, [number(i), *carried], strict=True))
            carried = self.run(op.regions[0].blocks[0], frame)
        return carried

    def _branch(self, op: Op, values: list[Value], frame: Frame) -> Sequence[Value]:
        condition = values[0]
        if not isinstance(condition, Number):
            self._skip(op)
            return ()
        taken = op.regions[:1] if condition.cut.any() else op.regions[1:]
        return self.run(taken[0].blocks[0], frame) if taken else ()

    def _skip(self, op: Op) -> None:
        """Note the accesses inside of an operation that is not followed."""
        self.seen.accesses.update({o.line: False for o in op.walk() if o.name in _ACCESSES})

    def _access(self, op: Op, values: list[Value]) -> None:
        pointer = values[0] if values else None
        at = _ACCESSES[op.name]
        mask = values[at] if len(values) > at else number(1)
        followed = isinstance(pointer, Pointer) and isinstance(mask, Number)
        self.seen.accesses[op.line] = followed and self.seen.accesses.get(op.line, True)
        if not isinstance(pointer, Pointer) or not isinstance(mask, Number) or self.seen.overflow:
            return
        used_or_meant = (mask.cut != 0) | (mask.meant != 0)  # a mask may leave out what overflowed, and nobody does it
        cut, meant, used = np.broadcast_arrays(pointer.at.cut, pointer.at.meant, used_or_meant)
        wrong = used & (cut != meant)
        if wrong.any():
            first = np.unravel_index(np.argmax(wrong), wrong.shape)
            self.seen.overflow = Overflow(pointer.argument, int(meant[first]), int(cut[first]), op.line, op.name)
