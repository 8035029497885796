"""Operations of TTGIR that compute each element by itself: arith, math, and those of tt.

Floats are computed in their own type; bf16 and fp16 by way of float32, and rounded once, as torch does. Functions
such as exp differ from the GPU's in their last bits.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from pgo_agent.sandbox.execution import conversions
from pgo_agent.sandbox.execution.errors import NotModelled
from pgo_agent.sandbox.execution.values import (
    FP8,
    constant,
    dtype,
    form,
    on_bits,
    result,
    rounded,
    signed,
    unsigned,
    unwritten,
)
from pgo_agent.sandbox.interpreter import libdevice
from pgo_agent.sandbox.interpreter.unsupported import Lacking
from pgo_agent.sandbox.ttgir.tree import Op

Tensor = Any  # a torch tensor
Apply = Callable[..., Any]  # values of operands -> value of the result

_SIGNED = {"eq": torch.eq, "ne": torch.ne, "slt": torch.lt, "sle": torch.le, "sgt": torch.gt, "sge": torch.ge}
_UNSIGNED = {"ult": np.less, "ule": np.less_equal, "ugt": np.greater, "uge": np.greater_equal}
_ORDERED = {"eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge}


def _cmpi(op: Op) -> Apply:
    how = op.words[0]
    if how in _SIGNED:
        signed_compare: Apply = _SIGNED[how]
        return signed_compare
    compare = _UNSIGNED[how]
    return lambda a, b: torch.from_numpy(np.asarray(compare(unsigned(a), unsigned(b))))


def _cmpf(op: Op) -> Apply:
    how = op.words[0]
    if how in ("true", "false"):
        return lambda a, b: torch.full(torch.broadcast_shapes(a.shape, b.shape), how == "true")
    if how in ("ord", "uno"):
        return lambda a, b: ~(a.isnan() | b.isnan()) if how == "ord" else a.isnan() | b.isnan()
    compare, unordered = _ORDERED[how[1:]], how[0] == "u"

    def apply(*two: Tensor) -> Tensor:
        a, b = (x.to(torch.float32) if x.dtype in FP8 else x for x in two)
        neither = a.isnan() | b.isnan()
        return compare(a, b) | neither if unordered else compare(a, b) & ~neither

    return apply


def _divided(a: Tensor, b: Tensor) -> Tensor:
    """Toward zero. What is undefined (by zero, the smallest by -1) is -1 by zero, and must not end this process."""
    by = _divisor(a, b)
    found = torch.where(by == -1, -a, torch.div(a, torch.where(by == -1, 1, by), rounding_mode="trunc"))
    return torch.where(b == 0, -1, found).to(a.dtype)


def _remainder(a: Tensor, b: Tensor) -> Tensor:
    by = _divisor(a, b)
    found = torch.where(by == -1, torch.zeros_like(a), torch.fmod(a, torch.where(by == -1, 1, by)))
    return torch.where(b == 0, -1, found).to(a.dtype)


def _divisor(a: Tensor, b: Tensor) -> Tensor:
    return torch.where(b == 0, torch.ones_like(b), b).expand(torch.broadcast_shapes(a.shape, b.shape))


def _of_unsigned(compute: Callable[[Any, Any], Any]) -> Apply:
    def apply(a: Tensor, b: Tensor) -> Tensor:
        with np.errstate(all="ignore"):
            return signed(compute(unsigned(a), unsigned(b)), a.dtype)

    return apply


def _by_nonzero(compute: Callable[[Any, Any], Any]) -> Apply:
    """By zero it is undefined: all ones."""

    def apply(a: Any, b: Any) -> Any:
        return np.where(b == 0, np.array(-1).astype(a.dtype), compute(a, np.where(b == 0, np.ones_like(b), b)))

    return _of_unsigned(apply)


def _shifted(compute: Callable[[Any, Any], Any]) -> Apply:
    """Shifts by as many bits as there are, or more, give nothing (PTX: shl, shr clamp)."""

    def apply(a: Tensor, b: Tensor) -> Tensor:
        bits = 8 * a.dtype.itemsize
        x, by = unsigned(a).astype(np.uint64), unsigned(b).astype(np.uint64)
        return signed(np.where(by >= bits, 0, compute(x, np.minimum(by, np.uint64(bits - 1)))), a.dtype)

    return apply


def _signed_shift(a: Tensor, b: Tensor) -> Tensor:
    bits = 8 * a.dtype.itemsize
    by = torch.from_numpy(np.asarray(np.minimum(unsigned(b).astype(np.uint64), np.uint64(bits - 1)).astype(np.int64)))
    return (a.to(torch.int64) >> by).to(a.dtype)


def _wrapping(compute: Apply) -> Apply:
    """i1 is a number of one bit."""
    return lambda a, b: (
        (compute(a.to(torch.int8), b.to(torch.int8)) & 1).bool() if a.dtype == torch.bool else compute(a, b)
    )


def _wide(compute: Apply) -> Apply:
    """Compute in float32 what torch cannot in fp8."""

    def apply(*given: Tensor) -> Tensor:
        if given[0].dtype not in FP8:
            return compute(*given)
        return rounded(compute(*(g.to(torch.float32) for g in given)), given[0].dtype)

    return apply


def _fused(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """a * b + c, rounded once."""
    if a.dtype != torch.float64:
        return (a.double() * b.double() + c.double()).to(torch.float32).to(a.dtype)
    three = torch.broadcast_tensors(a, b, c)
    exact = [_fraction(*each) for each in zip(*(x.reshape(-1).tolist() for x in three), strict=True)]
    return torch.tensor(exact, dtype=torch.float64).reshape(three[0].shape)


def _fraction(a: float, b: float, c: float) -> float:
    if not all(map(math.isfinite, (a, b, c))):
        return a * b + c
    try:
        return float(Fraction(a) * Fraction(b) + Fraction(c))
    except OverflowError:
        return a * b + c


def _in_float(function: Apply) -> Callable[[Op], Apply]:
    def prepared(_op: Op) -> Apply:
        def apply(x: Tensor, *more: Tensor) -> Tensor:
            wide = torch.float64 if x.dtype == torch.float64 else torch.float32
            return function(x.to(wide), *(m.to(wide) for m in more)).to(x.dtype)

        return apply

    return prepared


def _select(_op: Op) -> Apply:
    def apply(c: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return on_bits(lambda x, y: torch.where(c, x, y), a, b)

    return apply


def _clamp(op: Op) -> Apply:
    propagated = "all" in op.words

    def apply(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
        inside = torch.fmin(torch.fmax(x, low), high)
        return torch.where(x.isnan(), x, inside) if propagated else inside

    return apply


def _constant(op: Op) -> Apply:
    value = constant(op)
    return lambda: value


def _poison(op: Op) -> Apply:
    if not op.result_types[0].startswith(("tensor", "i", "f", "bf")):
        return lambda: None  # a token, or a buffer
    shape, kind = result(op)
    value = unwritten(shape, kind)
    return lambda: value


def _make(op: Op) -> Apply:
    start, end = op.integer("start") or 0, op.integer("end") or 0
    value = torch.arange(start, end, dtype=torch.int32)
    return lambda: value


def _addptr(op: Op) -> Apply:
    _, element = form(op.operand_types[0])
    size = pointee_size(element)

    def apply(pointer: Tensor, offset: Tensor) -> Tensor:
        by = offset.to(torch.int64)
        return pointer + by * size

    return apply


def pointee_size(element: str) -> int:
    """Return the bytes of what a pointer type points to."""
    inner = element.removeprefix("!tt.ptr<").removesuffix(">").split(",")[0].strip()
    if inner.startswith(("tensor", "!tt.ptr<tensor")):
        raise NotModelled("a pointer to a block")
    return int(dtype(inner).itemsize)


def _extern(op: Op) -> Apply:
    symbol = op.attributes.get("symbol", "").strip('"')
    try:
        function = libdevice.function(symbol)
    except Lacking as e:
        raise NotModelled(f"the function {symbol[:40]}") from e
    _, kind = result(op)

    def apply(*given: Tensor) -> Tensor:
        with np.errstate(all="ignore"):
            found = function(*(g.contiguous().numpy() for g in given))
        return torch.from_numpy(np.asarray(found)).to(kind)

    return apply


def _fixed(function: Apply) -> Callable[[Op], Apply]:
    return lambda _op: function


def _high(a: Any, b: Any) -> Any:
    bits = 8 * a.dtype.itemsize
    if bits <= 32:
        return (a.astype(np.uint64) * b.astype(np.uint64)) >> np.uint64(bits)
    return np.asarray((a.astype(object) * b.astype(object)) >> 64, dtype=np.uint64)


_MATH = (
    *("exp", "exp2", "log", "log2", "log10", "log1p", "expm1", "sqrt", "rsqrt", "sin", "cos", "tan", "tanh", "erf"),
    *("floor", "ceil", "trunc"),
)

OPS: dict[str, Callable[[Op], Apply]] = {
    **conversions.OPS,
    "arith.constant": _constant,
    "ub.poison": _poison,
    "tt.make_range": _make,
    "tt.addptr": _addptr,
    "arith.addi": _fixed(_wrapping(torch.add)),
    "arith.subi": _fixed(_wrapping(torch.sub)),
    "arith.muli": _fixed(_wrapping(torch.mul)),
    "arith.divsi": _fixed(_divided),
    "arith.remsi": _fixed(_remainder),
    "arith.ceildivsi": _fixed(lambda a, b: -torch.div(-a, _divisor(a, b), rounding_mode="floor")),
    "arith.floordivsi": _fixed(lambda a, b: torch.div(a, _divisor(a, b), rounding_mode="floor")),
    "arith.divui": _fixed(_by_nonzero(np.floor_divide)),
    "arith.remui": _fixed(_by_nonzero(np.remainder)),
    "arith.andi": _fixed(torch.bitwise_and),
    "arith.ori": _fixed(torch.bitwise_or),
    "arith.xori": _fixed(torch.bitwise_xor),
    "arith.shli": _fixed(_shifted(np.left_shift)),
    "arith.shrui": _fixed(_shifted(np.right_shift)),
    "arith.shrsi": _fixed(_signed_shift),
    "arith.maxsi": _fixed(torch.maximum),
    "arith.minsi": _fixed(torch.minimum),
    "arith.maxui": _fixed(_of_unsigned(np.maximum)),
    "arith.minui": _fixed(_of_unsigned(np.minimum)),
    "arith.cmpi": _cmpi,
    "arith.cmpf": _cmpf,
    "arith.select": _select,
    "arith.addf": _fixed(_wide(torch.add)),
    "arith.subf": _fixed(_wide(torch.sub)),
    "arith.mulf": _fixed(_wide(torch.mul)),
    "arith.divf": _fixed(_wide(torch.div)),
    "arith.remf": _fixed(_wide(torch.fmod)),
    "arith.negf": _fixed(_wide(torch.neg)),
    "arith.maximumf": _fixed(_wide(torch.maximum)),
    "arith.minimumf": _fixed(_wide(torch.minimum)),
    "arith.maxnumf": _fixed(_wide(torch.fmax)),
    "arith.minnumf": _fixed(_wide(torch.fmin)),
    "tt.clampf": _clamp,
    "tt.mulhiui": _fixed(_of_unsigned(_high)),
    "tt.precise_sqrt": _in_float(torch.sqrt),
    "tt.precise_divf": _in_float(torch.div),
    "tt.extern_elementwise": _extern,
    "math.fma": _fixed(_fused),
    "math.absi": _fixed(torch.abs),
    "math.absf": _fixed(_wide(torch.abs)),
    **{f"math.{name}": _in_float(getattr(torch, name)) for name in _MATH},
    "math.roundeven": _in_float(torch.round),
    "math.powf": _in_float(torch.pow),
    "math.copysign": _in_float(torch.copysign),
}
