"""Descriptors of TTGIR (TMA): made by a kernel or given to a launch; loads, stores and reductions of their blocks.

What lies outside of a tensor's shape is loaded as zero or NaN, and not stored, as by the hardware.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from pgo_agent.sandbox.execution.errors import NotModelled
from pgo_agent.sandbox.execution.memory import Memory
from pgo_agent.sandbox.execution.values import dtype, form, result, rounded
from pgo_agent.sandbox.ttgir.tree import Op

Tensor = Any  # a torch tensor
PADDING_NAN = 2  # Triton's PaddingOption


@dataclass(frozen=True)
class TensorDescriptor:
    base: int  # address
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements
    nan: bool = False

    def reach(self, corner: Sequence[int], block: Sequence[int], size: int) -> tuple[Tensor, Tensor]:
        """Return the addresses of a block, and which of them lie in the tensor."""
        at = torch.full((1,) * len(block), self.base, dtype=torch.int64)
        inside = torch.ones((1,) * len(block), dtype=torch.bool)
        for axis, (first, n) in enumerate(zip(corner, block, strict=True)):
            index = (first + torch.arange(n)).reshape([-1 if i == axis else 1 for i in range(len(block))])
            at = at + index * self.strides[axis] * size
            inside = inside & (index >= 0) & (index < self.shape[axis])
        return at, inside

    def other(self, kind: Any) -> Tensor:
        """Return what is loaded outside of the tensor."""
        if not kind.is_floating_point:
            return torch.zeros((), dtype=kind)
        return rounded(torch.tensor(float("nan") if self.nan else 0.0), kind)


def make(op: Op, values: Sequence[Any]) -> TensorDescriptor:
    """Return what a tt.make_tensor_descriptor makes of its operands: base, shape, strides."""
    rank = (len(values) - 1) // 2
    numbers = [int(v) for v in values]
    return TensorDescriptor(
        numbers[0], tuple(numbers[1 : rank + 1]), tuple(numbers[rank + 1 :]), op.integer("padding") == PADDING_NAN
    )


def load(op: Op, memory: Memory, values: Sequence[Any]) -> Tensor:
    described, *corner = values
    block, element = form(op.operand_types[0])
    kind = dtype(element)
    at, inside = described.reach([int(c) for c in corner], block, kind.itemsize)
    return memory.load(at, kind, inside.expand(at.shape), described.other(kind)).reshape(result(op)[0])


def store(op: Op, memory: Memory, values: Sequence[Any]) -> None:
    described, value, corner = _parted(values)
    block, element = form(op.operand_types[0])
    kind = dtype(element)
    at, inside = described.reach(corner, block, kind.itemsize)
    if op.name == "tt.descriptor_store":
        memory.store(at, value.reshape(block), inside.expand(at.shape))
        return
    memory.change(at, inside.expand(at.shape), kind, [value.reshape(block)], reduction(op))


def reduction(op: Op) -> Callable[[Tensor, Tensor], Tensor]:
    """Return what a reduction computes. Raises NotModelled for an unknown one, and for integers that have no sign."""
    compute = _REDUCED.get(op.words[0] if op.words else "")
    if compute is None or (op.words[0] in ("min", "max") and "ui" in op.operand_types[0]):
        raise NotModelled("this reduction by a descriptor")
    return compute


def _parted(values: Sequence[Any]) -> tuple[TensorDescriptor, Tensor, list[int]]:
    """In the order of the text: the descriptor, its corner, and the value behind it."""
    described, *rest = values
    tensors = [v for v in rest if v.dim()]
    return described, tensors[0], [int(v) for v in rest if not v.dim()]


_REDUCED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add, "min": torch.minimum, "max": torch.maximum, "and": torch.bitwise_and, "or": torch.bitwise_or,
    "xor": torch.bitwise_xor,
}  # fmt: skip
