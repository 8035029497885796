"""Products of tiles in Triton's interpreter, as tensor cores compute them.

tf32 operands lose the bits that a tensor core does not read; bf16x3 and bf16x6 are sums of products of bf16 parts; an
fp16 accumulator is rounded after every 16 products. Hopper and Ada add fp8 products with fewer bits (`fp8_sums.py`);
where such a product is not a matrix, or its accumulator is not float32, that is not modelled and is reported. Scaled
products multiply the values by their scales, both exact in float32. Other sums are in float32, in another order.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from pgo_agent.sandbox import fp8_sums
from pgo_agent.sandbox.interpreter import floats
from pgo_agent.sandbox.interpreter.arithmetic import value
from pgo_agent.sandbox.interpreter.unsupported import otherwise
from triton import language as tl
from triton._C.libtriton import ir
from triton.language.semantic import TritonSemantic
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

Array = Any  # numpy array
STEP = 16  # products that a tensor core adds before it rounds to an fp16 accumulator
_PARTS = {"BF16x3": 2, "BF16x6": 3}  # bf16 numbers that an operand is split into
_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=np.float32)


_arch: int | None = None  # of the GPU whose products these are; None: not known


def on(arch: int) -> None:
    """Say for which GPU kernels are interpreted: its compute capability x 10."""
    global _arch
    _arch = arch


def _dot(_builder: Any, a: Any, b: Any, d: Any, precision: Any, imprecise: Any) -> Any:
    x, y, total = value(a), value(b), d.data
    with np.errstate(all="ignore"):
        if a.dtype.scalar.is_int():
            exact = _product(x.astype(np.float64), y.astype(np.float64)).astype(np.int64)  # below 2^53
            return TensorHandle((exact + total).astype(total.dtype), d.dtype.scalar)
        if a.dtype.scalar.is_fp8() and (_arch is None or fp8_sums.cut(_arch)):
            if _arch is not None and x.ndim == 2 and total.dtype == np.float32:
                return TensorHandle(_in_fixed_point(x, y, total, imprecise), d.dtype.scalar)
            otherwise("fp8 products, which Hopper adds up with fewer bits")
        if a.dtype.scalar.is_fp32():
            total = sum(_product(p, q) for p, q in _split(x, y, precision.name)) + total
        elif total.dtype == np.float16:
            total = _in_fp16(x.astype(np.float32), y.astype(np.float32), total)
        else:
            total = _product(x.astype(total.dtype), y.astype(total.dtype)) + total
    return TensorHandle(total, d.dtype.scalar)


def _product(x: Array, y: Array) -> Array:
    """Multiply by PyTorch, whose one thread is faster than numpy's several on a busy machine."""
    return torch.matmul(*(torch.from_numpy(np.ascontiguousarray(t)) for t in (x, y))).numpy()


def _split(x: Array, y: Array, precision: str) -> Iterator[tuple[Array, Array]]:
    """Give the operands of the products whose sum is a float32 product."""
    if precision == "TF32":
        yield _truncated(x), _truncated(y)
    elif precision in _PARTS:
        n = _PARTS[precision]
        mine, yours = _parts(x, n), _parts(y, n)
        yield from ((mine[i], yours[j]) for i in range(n) for j in range(n - i))
    else:  # ieee, and tf32x3, which errs by little more
        yield x, y


def _truncated(x: Array) -> Array:
    return (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def _parts(x: Array, count: int) -> list[Array]:
    parts = []
    for _ in range(count):
        parts.append(floats.numbers(floats.bits(x, tl.bfloat16), tl.bfloat16))
        x = x - parts[-1]
    return parts


def _in_fixed_point(x: Array, y: Array, total: Array, imprecise: int) -> Array:
    """Add fp8 products as Hopper does; where only so many may be added in this way, each such sum is then promoted."""
    depth = x.shape[-1]
    left, right = (torch.from_numpy(np.ascontiguousarray(t, dtype=np.float32)) for t in (x, y.T))
    if imprecise <= 0 or imprecise >= depth:
        return fp8_sums.accumulated(left, right, total=torch.from_numpy(total.copy())).numpy()
    parts = zip(left.split(imprecise, 1), right.split(imprecise, 1), strict=True)
    return sum((fp8_sums.accumulated(p, q).numpy() for p, q in parts), start=total)


def _in_fp16(x: Array, y: Array, total: Array) -> Array:
    for k in range(0, x.shape[-1], STEP):
        total = (_product(x[..., k : k + STEP], y[..., k : k + STEP, :]) + total).astype(np.float16)
    return total


def _dot_scaled(
    _builder: Any,
    a: Any,
    a_scale: Any,
    a_format: Any,
    b: Any,
    b_scale: Any,
    b_format: Any,
    _fast: Any,
    a_packs_k: bool,
    b_packs_k: bool,
    d: Any,
) -> Any:
    x = _scaled(_unpacked(a, a_format, -1 if a_packs_k else -2), a_scale)
    y = _scaled(np.swapaxes(_unpacked(b, b_format, -2 if b_packs_k else -1), -1, -2), b_scale)
    with np.errstate(all="ignore"):
        return TensorHandle((_product(x, np.swapaxes(y, -1, -2)) + d.data).astype(np.float32), tl.float32)


def _unpacked(operand: Any, form: Any, axis: int) -> Array:
    """Return an operand's values; a byte holds two of e2m1, the first in its low half."""
    if form != ir.ScaleDotElemTypeTY.E2M1:
        return value(operand).astype(np.float32)
    codes = np.moveaxis(operand.data.view(np.uint8), axis, -1)
    pairs = np.stack([codes & 15, codes >> 4], axis=-1)
    return np.moveaxis(_E2M1[pairs.reshape(*codes.shape[:-1], -1)], -1, axis)


def _scaled(rows: Array, scale: Any) -> Array:
    """Return rows along K times their scales: e8m0 (255 is NaN), each for equally many neighbours."""
    if scale is None:
        return rows
    codes = scale.data.view(np.uint8).astype(np.int32)
    factors = np.where(codes == 255, np.nan, np.ldexp(np.float64(1), codes - 127)).astype(np.float32)
    return rows * np.repeat(factors, rows.shape[-1] // factors.shape[-1], axis=-1)


def install() -> None:
    """Replace the builder's methods. Call it before a candidate is imported."""
    checked = TritonSemantic.dot_scaled

    def dot_scaled(
        semantic: Any, a: Any, a_scale: Any, a_format: Any, b: Any, b_scale: Any, b_format: Any, *how: Any
    ) -> Any:
        a_format, b_format = (f if hasattr(f, "value") else tl.constexpr(f) for f in (a_format, b_format))
        return checked(semantic, a, a_scale, a_format, b, b_scale, b_format, *how)

    TritonSemantic.dot_scaled = dot_scaled  # it needs constexprs, as from the compiler
    InterpreterBuilder.create_dot = _dot
    InterpreterBuilder.create_dot_scaled = _dot_scaled
