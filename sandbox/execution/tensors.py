"""Operations of TTGIR on whole tensors: shapes, products, reductions, scans, gathers and histograms.

A reduction pairs the first half of its axis with the second; a scan doubles its distance. Both are orders that compiled
code may take, and others than that of Triton's interpreter: a function that is not associative comes out otherwise.
"""

import re
from collections.abc import Callable
from typing import Any

import torch
from pgo_agent.sandbox.execution.errors import KernelFault, NotModelled
from pgo_agent.sandbox.execution.values import on_bits, result
from pgo_agent.sandbox.ttgir.tree import Op

Tensor = Any  # a torch tensor
Apply = Callable[..., Any]
Combine = Callable[[list[Tensor], list[Tensor]], list[Tensor]]  # what a region makes of two lists of operands


def _splat(op: Op) -> Apply:
    shape, _ = result(op)
    return lambda x: x.reshape(()).expand(shape)


def _unsplat(_op: Op) -> Apply:
    return lambda x: x.reshape(-1)[0]


def _broadcast(op: Op) -> Apply:
    shape, _ = result(op)
    return lambda x: x.expand(shape)


def _expand(op: Op) -> Apply:
    axis = op.integer("axis") or 0
    return lambda x: x.unsqueeze(axis)


def _reshape(op: Op) -> Apply:
    shape, _ = result(op)
    return lambda x: on_bits(lambda y: y.reshape(shape), x)


def _trans(op: Op) -> Apply:
    order = order_of(op)
    return lambda x: x.permute(order)


def order_of(op: Op) -> list[int]:
    """Return the order of dimensions that a transposition names."""
    return [int(n) for n in re.findall(r"\d+", op.attributes.get("order", "").partition("array<i32:")[2])]


def _join(_op: Op) -> Apply:
    return lambda a, b: on_bits(lambda x, y: torch.stack([x, y], dim=-1), a, b)


def _split(_op: Op) -> Apply:
    return lambda x: (x[..., 0], x[..., 1])


def _cat(_op: Op) -> Apply:
    """The op promises no order (`can_reorder=True`)."""
    return lambda a, b: on_bits(lambda x, y: _reordered(torch.cat([x, y])), a, b)


def _reordered(x: Tensor) -> Tensor:
    """Return elements in an order that compiled code might have and that nobody would write: from last to first."""
    return x.reshape(-1).flip(0)


def _dot(op: Op) -> Apply:
    listed = list(op.words)
    return product(listed[listed.index("inputPrecision") + 1] if "inputPrecision" in listed[:-1] else "ieee")


def product(precision: str) -> Apply:
    """Return what multiplies matrices and adds a third. `precision`: of float32 operands, tf32 or ieee."""

    def apply(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        if not a.is_floating_point():
            return c + torch.matmul(a.to(torch.int32), b.to(torch.int32)).to(c.dtype)
        x, y = a.to(torch.float32), b.to(torch.float32)
        if a.dtype == torch.float32 and precision == "tf32":
            x, y = _tf32(x), _tf32(y)
        if a.dtype == torch.float64:
            x, y = a, b
        return (c.to(x.dtype) + torch.matmul(x, y)).to(c.dtype)

    return apply


def _tf32(x: Tensor) -> Tensor:
    """Keep ten bits of the fraction, cut off as the tensor cores do."""
    return (x.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)


def _gather(op: Op) -> Apply:
    axis = op.integer("axis") or 0

    def apply(source: Tensor, index: Tensor) -> Tensor:
        if index.numel() and (int(index.min()) < 0 or int(index.max()) >= source.shape[axis]):
            raise KernelFault(f"gathers from outside of an axis of {source.shape[axis]} elements")
        return on_bits(lambda s: torch.gather(s, axis, index.to(torch.int64)), source)

    return apply


def _histogram(op: Op) -> Apply:
    shape, kind = result(op)

    def apply(x: Tensor, mask: Tensor | None = None) -> Tensor:
        used = x if mask is None else x[mask]
        if used.numel() and (int(used.min()) < 0 or int(used.max()) >= shape[0]):
            raise KernelFault(f"counts a number outside of the {shape[0]} bins of a histogram")
        return torch.bincount(used.reshape(-1).to(torch.int64), minlength=shape[0]).to(kind)

    return apply


OPS: dict[str, Callable[[Op], Apply]] = {
    "tt.splat": _splat,
    "tt.unsplat": _unsplat,
    "tt.broadcast": _broadcast,
    "tt.expand_dims": _expand,
    "tt.reshape": _reshape,
    "tt.trans": _trans,
    "tt.join": _join,
    "tt.split": _split,
    "tt.cat": _cat,
    "tt.dot": _dot,
    "tt.gather": _gather,
    "tt.histogram": _histogram,
}


def reduced(given: list[Tensor], axis: int, combine: Combine) -> list[Tensor]:
    """Return the reduction of tensors along an axis."""
    while (size := given[0].shape[axis]) > 1:
        half = size // 2
        first = [g.narrow(axis, 0, half) for g in given]
        second = [g.narrow(axis, half, half) for g in given]
        given = [*combine(first, second)]
        if size % 2:
            raise NotModelled("a reduction of an odd number of elements")
    return [g.squeeze(axis) for g in given]


def scanned(given: list[Tensor], axis: int, reverse: bool, combine: Combine) -> list[Tensor]:
    """Return the inclusive scan of tensors along an axis."""
    at = [g.flip(axis) if reverse else g for g in given]
    size, by = at[0].shape[axis], 1
    while by < size:
        before = [g.narrow(axis, 0, size - by) for g in at]
        later = [g.narrow(axis, by, size - by) for g in at]
        new = combine(before, later)
        at = [torch.cat([g.narrow(axis, 0, by), n], dim=axis) for g, n in zip(at, new, strict=True)]
        by *= 2
    return [g.flip(axis) if reverse else g for g in at]
