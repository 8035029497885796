"""Arithmetic of Triton's interpreter, replaced where it differs from compiled code.

Maxima and minima drop a NaN unless they must keep it; bf16 and fp8 are computed as `floats.py` says; booleans
wrap around as one-bit integers; a fused multiply-add rounds once; a float becomes the nearest integer in range.
Relies on the builder's methods of Triton 3.6 to 3.9.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from pgo_agent.sandbox.interpreter import floats, repeated
from pgo_agent.sandbox.interpreter.unsupported import Lacking, otherwise
from triton import language as tl
from triton._C.libtriton import ir
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

Array = Any  # numpy array
_dtype = repeated.np_dtype
_PRECISIONS = ("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6")  # of dots, as for NVIDIA


def value(handle: Any) -> Array:
    """Return the numbers of a handle."""
    return floats.numbers(np.asarray(handle.data), handle.dtype.scalar)


def handle(values: Array, kind: Any) -> Any:
    """Return a handle of these numbers; booleans (of comparisons) stay booleans."""
    if values.dtype == np.bool_:
        return TensorHandle(values, tl.int1)
    data = floats.bits(values, kind) if floats.narrow(kind) else values.astype(_dtype(kind), copy=False)
    return TensorHandle(data, kind)


def _binary(_builder: Any, lhs: Any, rhs: Any, op: Any) -> Any:
    kind = lhs.dtype.scalar
    if isinstance(kind, tl.pointer_type):
        result = op(lhs.data, rhs.data)
        return TensorHandle(result, tl.int1 if result.dtype == np.bool_ else kind)
    a, b = value(lhs), value(rhs)
    with np.errstate(all="ignore"):
        if op in (np.add, np.subtract, np.multiply) and a.dtype == b.dtype == np.bool_:
            return TensorHandle((op(a.astype(np.int8), b.astype(np.int8)) & 1).astype(np.bool_), tl.int1)
        return handle(op(a, b), kind)


def _cast(_builder: Any, src: Any, to: Any, toward_zero: bool = False) -> Any:
    kind, numbers = to.scalar, value(src)
    if floats.narrow(kind):
        return TensorHandle(floats.bits(numbers, kind, toward_zero), kind)
    if np.issubdtype(numbers.dtype, np.floating) and kind.is_int():
        return TensorHandle(_integers(numbers, _dtype(kind)), kind)
    if toward_zero and kind.is_fp16():
        numbers = floats.quantized(numbers, floats.FP16, True)
    with np.errstate(all="ignore"):
        return TensorHandle(numbers.astype(_dtype(kind)), kind)


def _integers(values: Array, dtype: Any) -> Array:
    """Convert as PTX's cvt.rzi: the nearest integer in range, 0 for a NaN; through at least 32 bits."""
    wide = np.promote_types(dtype, np.int32) if dtype.kind == "i" else np.promote_types(dtype, np.uint32)
    least, most = np.iinfo(wide).min, np.iinfo(wide).max
    cut = np.trunc(values.astype(np.float64))
    fits = (cut >= least) & (cut < float(most) + 1)
    if not fits.all():
        otherwise("a float outside of the range of the integer that it becomes (undefined)")
    inside = np.where(fits, cut, 0).astype(wide)
    limited = np.where(cut > 0, most, np.where(cut < 0, least, 0)).astype(wide)
    return np.where(fits, inside, limited).astype(dtype)


def _to_float(builder: Any, src: Any, to: Any, rounding: Any) -> Any:
    return _cast(builder, src, to, rounding == ir.ROUNDING_MODE.RTZ)


def _clamp(builder: Any, x: Any, low: Any, high: Any, keep_nan: Any) -> Any:
    if keep_nan == ir.PROPAGATE_NAN.NONE:
        return _binary(builder, _binary(builder, x, low, np.fmax), high, np.fmin)
    return handle(np.clip(value(x), value(low), value(high)), x.dtype.scalar)


def _fma(_builder: Any, x: Any, y: Any, z: Any) -> Any:
    with np.errstate(all="ignore"):
        exact = np.multiply(value(x), value(y), dtype=np.float64) + value(z)
    return handle(exact, z.dtype.scalar)


def _divided(_builder: Any, lhs: Any, rhs: Any) -> Any:
    with np.errstate(all="ignore"):
        if not np.all(rhs.data):
            otherwise("an integer divided by zero (undefined)")
        return TensorHandle((lhs.data - np.fmod(lhs.data, rhs.data)) // rhs.data, lhs.dtype.scalar)


def _shift(op: Any, signed: bool) -> Callable[..., Any]:
    def shifted(_builder: Any, lhs: Any, rhs: Any) -> Any:
        kind = np.dtype(interpreter._get_signed_np_dtype(lhs.data.dtype) if signed else lhs.data.dtype)
        if np.any(rhs.data.astype(np.uint64) >= 8 * kind.itemsize):
            otherwise("a shift by as many bits as there are, or more (undefined)")
        return TensorHandle(op(lhs.data.astype(kind), rhs.data.astype(kind)), lhs.dtype.scalar)

    return shifted


def _high_product(_builder: Any, lhs: Any, rhs: Any) -> Any:
    """Return the high half of the product, as unsigned numbers."""
    dtype, size = lhs.data.dtype, lhs.data.dtype.itemsize
    a, b = (h.data.view(f"u{size}").astype(object if size == 8 else f"u{2 * size}") for h in (lhs, rhs))
    return TensorHandle(((a * b) >> (8 * size)).astype(f"u{size}").view(dtype), lhs.dtype.scalar)


def _constant(kind: Any) -> Callable[..., Any]:
    return lambda _builder, number: handle(np.array([number], dtype=np.float64), kind)


def _ones(_builder: Any, to: Any) -> Any:
    dtype = _dtype(to)
    if dtype == np.bool_:
        return TensorHandle(np.ones(1, dtype=dtype), to.scalar)
    return TensorHandle(np.full(1, -1, dtype=f"i{dtype.itemsize}").view(dtype), to.scalar)


def _not_printed(*_args: Any) -> None:
    """Ignore what a kernel prints."""


def _unary(_builder: Any, x: Any, op: Any) -> Any:
    with np.errstate(all="ignore"):
        return handle(op(value(x)), x.dtype.scalar)


def _absent(_builder: Any, name: str) -> Any:
    raise AttributeError(name) if name.startswith("__") else Lacking(f"the operation {name.removeprefix('create_')}")


def _lacking(what: str) -> Callable[..., Any]:
    def lack(*_args: Any, **_kwargs: Any) -> Any:
        raise Lacking(what)

    return lack


def install() -> None:
    """Replace the builder's methods. Call it before a candidate is imported."""
    methods = {
        "binary_op": _binary,
        "unary_op": _unary,
        "cast_impl": _cast,
        "create_fp_to_fp": _to_float,
        "create_clampf": _clamp,
        "create_fma": _fma,
        "create_idiv": _divided,
        "create_shl": _shift(np.left_shift, False),
        "create_lshr": _shift(np.right_shift, False),
        "create_ashr": _shift(np.right_shift, True),
        "create_umulhi": _high_product,
        "create_maxnumf": lambda b, x, y: _binary(b, x, y, np.fmax),
        "create_minnumf": lambda b, x, y: _binary(b, x, y, np.fmin),
        "create_fneg": lambda b, x: _unary(b, x, np.negative),
        "get_bf16": _constant(tl.bfloat16),
        "get_fp8e5": _constant(tl.float8e5),
        "get_fp8e4nv": _constant(tl.float8e4nv),
        "get_all_ones_value": _ones,
        "create_print": _not_printed,
        "new_block": _lacking("tl.map_elementwise"),
        "__getattr__": _absent,
    }
    for name, method in methods.items():
        setattr(InterpreterBuilder, name, method)
    options = interpreter.InterpreterOptions(sanitize_overflow=False, allowed_dot_input_precisions=_PRECISIONS)
    interpreter.interpreter_builder.options = options
