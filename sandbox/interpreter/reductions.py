"""Reductions, scans and histograms of Triton's interpreter, computed as in compiled code.

Maxima drop NaN; a maximum's index is found pair by pair, with the compiled rule for NaN and ties; a sum of 16-bit
floats is rounded at each step of a tree. Other functions are applied element by element by Triton's interpreter, which
is slow. The tree differs from the compiled one only in its order.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from pgo_agent.sandbox.interpreter import floats
from pgo_agent.sandbox.interpreter.arithmetic import handle, value
from pgo_agent.sandbox.interpreter.unsupported import otherwise
from triton import language as tl
from triton.language import standard
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

Array = Any  # numpy array
Combine = Callable[[list[Array], list[Array]], list[Array]]


def _tree(parts: list[Array], axis: int, combine: Combine) -> list[Array]:
    """Combine halves along an axis until one element is left; the axis stays."""
    while (n := parts[0].shape[axis]) > 1:
        low, high = ([np.take(p, r, axis) for p in parts] for r in (range(n // 2), range(n // 2, n)))
        parts = combine(low, high)
    return parts


def _best(better: Any, leftmost: bool) -> Combine:
    """Return a function of two (values, indices): the first if better, or equal and further left; else the second."""

    def combine(one: list[Array], two: list[Array]) -> list[Array]:
        first = better(one[0], two[0])
        if leftmost:
            first = first | ((one[0] == two[0]) & (one[1] < two[1]))
        return [np.where(first, a, b) for a, b in zip(one, two, strict=True)]

    return combine


_BEST = {
    standard._argmax_combine_tie_break_left: _best(np.greater, True),
    standard._argmax_combine_tie_break_fast: _best(np.greater, False),
    standard._argmin_combine_tie_break_left: _best(np.less, True),
    standard._argmin_combine_tie_break_fast: _best(np.less, False),
}
_EXTREME = {standard._elementwise_max: np.fmax, standard._elementwise_min: np.fmin}


def _reduced(ops: Any, inputs: tuple[Any, ...]) -> Any:
    """Reduce as `ReduceOps.apply_impl`: return tensors without the axis, or with it as one element."""
    ops.axis = _axis(ops, inputs)
    kind = inputs[0].dtype
    best = _BEST.get(ops.combine_fn) if len(inputs) == 2 else None
    rounded = ops.combine_fn is standard._sum_combine and kind.is_floating() and kind.primitive_bitwidth <= 16
    if best is None and not rounded and ops.combine_fn not in (*_EXTREME, standard._sum_combine):
        return ops.generic_reduce(inputs)
    parts, axis = [value(g.handle) for g in inputs], ops.axis
    if axis is None:
        parts, axis = [p.reshape(-1) for p in parts], 0
    if best:
        if kind.is_floating() and np.isnan(parts[0]).any():
            otherwise("a maximum's or minimum's index among NaN, which depends on the order of comparisons")
        parts = _tree(parts, axis, best)
    elif rounded:
        parts = _tree(parts, axis, lambda a, b: [_rounded(a[0] + b[0], kind)])
    else:
        ufunc = _EXTREME.get(ops.combine_fn, np.add)
        parts = [np.expand_dims(ufunc.reduce(parts[0], axis=axis, dtype=parts[0].dtype), axis)]
    return [_tensor(p, g.dtype, _shape(ops, inputs[0], axis)) for p, g in zip(parts, inputs, strict=True)]


def _axis(ops: Any, inputs: tuple[Any, ...]) -> int | None:
    """Return a nonnegative axis: Triton's loops over elements misread a negative one."""
    axis = getattr(ops.axis, "value", ops.axis)
    return None if axis is None else int(axis) % inputs[0].handle.data.ndim


def _rounded(values: Array, kind: Any) -> Array:
    """Round sums to the type; numpy already rounds fp16."""
    return floats.numbers(floats.bits(values, kind), kind) if floats.narrow(kind) else values


def _shape(ops: Any, first: Any, axis: int) -> tuple[int, ...]:
    shape = first.handle.data.shape
    if ops.axis is None:
        return (1,) * len(shape) if ops.keep_dims else ()
    return (*shape[:axis], *((1,) if ops.keep_dims else ()), *shape[axis + 1 :])


def _tensor(values: Array, kind: Any, shape: tuple[int, ...]) -> Any:
    result = handle(values.reshape(shape or (1,)), kind.scalar)
    result.dtype = kind.scalar
    return tl.core.tensor(result, tl.block_type(kind, list(shape)) if shape else kind)


def _scanned(ops: Any, inputs: tuple[Any, ...]) -> Any:
    """Scan as `ScanOps.apply_impl`."""
    ops.axis = _axis(ops, inputs)
    turned = [_turned(ops, g) for g in inputs]
    ufuncs: dict[Any, Any] = {standard._sum_combine: np.cumsum, standard._prod_combine: np.cumprod}
    ufunc = ufuncs.get(ops.combine_fn)
    if ufunc is None or floats.narrow(inputs[0].dtype.scalar):
        results = ops.generic_scan(turned)
    else:
        data = turned[0].handle.data
        results = [_tensor(ufunc(data, axis=ops.axis, dtype=data.dtype), inputs[0].dtype, data.shape)]
    return [_turned(ops, f) for f in results]


def _turned(ops: Any, t: Any) -> Any:
    if not ops.reverse:
        return t
    data = np.ascontiguousarray(np.flip(t.handle.data, axis=ops.axis))
    return tl.core.tensor(TensorHandle(data, t.dtype.scalar), t.type)


def _histogram(_builder: Any, data: Any, bins: int, mask: Any) -> Any:
    """Count the values in each bin; others are dropped."""
    inside = (data.data < bins) & (data.data >= 0)
    if mask is not None:
        inside &= mask.data
    return TensorHandle(np.bincount(data.data[inside].astype(np.int64), minlength=bins).astype(np.int32), tl.int32)


def install() -> None:
    """Replace Triton's reductions. Call it before a candidate is imported."""
    interpreter.ReduceOps.apply_impl = _reduced
    interpreter.ScanOps.apply_impl = _scanned
    InterpreterBuilder.create_histogram = _histogram
