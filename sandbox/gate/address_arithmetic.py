"""TTGIR's integer arithmetic behind a kernel's addresses, on numbers that are cut to their width and uncut.

Returns None for what is unknown. Does not follow control flow or accesses: `addresses.py` does.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from pgo_agent.sandbox.ttgir import types
from pgo_agent.sandbox.ttgir.tree import Op

_SAFE = 2.0**62  # an uncut number beyond it might not fit 64 bits, and counts as unknown


@dataclass(frozen=True)
class Number:
    """An integer, or a tensor of them: `cut` is the hardware's, `meant` the same without overflows."""

    cut: Any  # int64 array, of no dimension for a scalar
    meant: Any


@dataclass(frozen=True)
class Pointer:
    """Positions in the tensor that an argument points to, in elements."""

    argument: int
    at: Number


Value = Number | Pointer | None  # None: not known


def number(n: int) -> Number:
    """Return a scalar; from 2^63 on it wraps around."""
    at = np.asarray(np.int64(n - 2**64 if n >= 2**63 else n))
    return Number(at, at)


def compute(op: Op, values: list[Value]) -> Value:
    """Return the result of an operation on operands, or None where it is unknown.

    Raises ValueError, IndexError or TypeError for an operation that Triton does not print so.
    """
    if op.name == "arith.constant":
        return _constant(op)
    if op.name == "tt.make_range":
        low, high = op.integer("start"), op.integer("end")
        whole = np.arange(low or 0, high or 0, dtype=np.int64)
        return Number(whole, whole)
    if op.name == "tt.addptr":
        return _moved(values)
    if not values or any(v is None for v in values):
        return None
    if op.name in _SHAPES:
        first = values[0]
        return Pointer(first.argument, _shaped(op, first.at)) if isinstance(first, Pointer) else _shaped(op, first)
    numbers = [v for v in values if isinstance(v, Number)]
    return _arithmetic(op, numbers) if len(numbers) == len(values) else _chosen(op, values)


def _constant(op: Op) -> Value:
    text = re.search(r"arith\.constant (?:\{.*\} )?(?:dense<)?(-?\d+|true|false)[ >:]", f"{op} ")
    if text is None or not _element(next(iter(op.result_types), "i1")).startswith("i"):  # `true` stands without a type
        return None
    n = number({"true": 1, "false": 0}[text[1]] if text[1] in ("true", "false") else int(text[1]))
    shaped = types.shaped(next(iter(op.result_types), ""))
    return n if shaped is None else Number(*(np.broadcast_to(x, shaped.shape) for x in (n.cut, n.meant)))


def _moved(values: list[Value]) -> Value:
    pointer, by = values
    if not isinstance(pointer, Pointer) or not isinstance(by, Number):
        return None
    return Pointer(pointer.argument, Number(pointer.at.cut + by.cut, pointer.at.meant + by.meant))


def _chosen(op: Op, values: list[Value]) -> Value:
    """Choose one of two pointers into the same tensor."""
    match values:
        case [Number() as condition, Pointer() as a, Pointer() as b] if a.argument == b.argument:
            pairs = [(a.at.cut, b.at.cut), (a.at.meant, b.at.meant)] if op.name == "arith.select" else []
            return (
                Pointer(a.argument, Number(*(np.where(condition.cut != 0, x, y) for x, y in pairs))) if pairs else None
            )
    return None


def _shaped(op: Op, n: Any) -> Number:
    shaped = types.shaped(op.result_types[0])
    shape = shaped.shape if shaped else ()

    def reshape(x: Any) -> Any:
        if op.name == "tt.expand_dims":
            return np.expand_dims(x, op.integer("axis") or 0)
        if op.name == "tt.trans":
            order = op.attributes.get("order", "").partition(":")[2]  # array<i32: 1, 0>
            return np.transpose(x, [int(i) for i in re.findall(r"\d+", order)])
        return np.reshape(x, shape) if op.name == "tt.reshape" else np.broadcast_to(x, shape)

    return n if op.name == "ttg.convert_layout" else Number(reshape(n.cut), reshape(n.meant))


_SHAPES = frozenset({"tt.splat", "tt.expand_dims", "tt.broadcast", "tt.trans", "tt.reshape", "ttg.convert_layout"})


def _element(text: str) -> str:
    shaped = types.shaped(text)
    return shaped.element if shaped else text


def _quotient(a: Any, b: Any) -> Any:
    """Divide, rounding toward zero."""
    return np.where(b == 0, 0, (np.abs(a) // np.maximum(np.abs(b), 1)) * np.sign(a) * np.sign(b))


_EXACT: Mapping[str, Callable[..., Any]] = {
    "arith.addi": np.add,
    "arith.subi": np.subtract,
    "arith.muli": np.multiply,
    "arith.shli": lambda a, b: a * np.left_shift(np.int64(1), np.minimum(b, 62)),
    "arith.andi": np.bitwise_and,
    "arith.ori": np.bitwise_or,
    "arith.xori": np.bitwise_xor,
    "arith.divsi": _quotient,
    "arith.remsi": lambda a, b: a - b * _quotient(a, b),
    "arith.shrsi": lambda a, b: np.right_shift(a, np.minimum(b, 63)),
    "arith.minsi": np.minimum,
    "arith.maxsi": np.maximum,
    "arith.extsi": lambda a: a,
    "arith.index_cast": lambda a: a,
    "arith.select": lambda c, a, b: np.where(c != 0, a, b),
}


_UNSIGNED: Mapping[str, Callable[..., Any]] = {
    "arith.divui": _quotient,
    "arith.remui": lambda a, b: a - b * _quotient(a, b),
    "arith.shrui": lambda a, b: np.right_shift(a, np.minimum(b, 63)),
    "arith.minui": np.minimum,
    "arith.maxui": np.maximum,
    "arith.extui": lambda a: a,
}


_COMPARES: Mapping[str, Callable[..., Any]] = {
    "eq": np.equal, "ne": np.not_equal, "slt": np.less, "sle": np.less_equal, "sgt": np.greater,
    "sge": np.greater_equal, "ult": np.less, "ule": np.less_equal, "ugt": np.greater, "uge": np.greater_equal,
}  # fmt: skip


def _arithmetic(op: Op, numbers: list[Number]) -> Value:
    width = types.bits(_element(op.operand_types[-1] if op.operand_types else op.result_types[0]))
    out = types.bits(_element(op.result_types[0])) if op.result_types else 0
    if not 0 < width <= 64 or not out:
        return None
    if op.name == "arith.trunci":  # an offset that is cut so is not what it was meant to be
        return Number(_wrapped(numbers[0].cut, out), numbers[0].meant)
    if op.name == "arith.cmpi":
        return _compared(op, numbers, width)
    if op.name in _UNSIGNED:
        numbers = [_unsigned(g, width) for g in numbers] if width < 64 else numbers
        function = _UNSIGNED[op.name]
    elif op.name in _EXACT:
        function = _EXACT[op.name]
        numbers = [Number(g.cut, np.bitwise_and(g.meant, 1)) for g in numbers] if width == 1 else numbers
    else:
        return None
    if op.name in ("arith.muli", "arith.shli", "arith.addi", "arith.subi") and not _fits(op.name, numbers):
        return None
    return Number(_wrapped(function(*(g.cut for g in numbers)), out), function(*(g.meant for g in numbers)))


def _compared(op: Op, numbers: list[Number], width: int) -> Value:
    """Compare as the hardware does, and as it is meant: a mask may hide that the number in it overflowed."""
    if op.words[0].startswith("u"):
        numbers = [_unsigned(g, width) for g in numbers] if width < 64 else numbers
    compare, (one, other) = _COMPARES[op.words[0]], numbers
    cut, meant = compare(one.cut, other.cut), compare(one.meant, other.meant)
    return Number(np.asarray(cut).astype(np.int64), np.asarray(meant).astype(np.int64))


def _unsigned(n: Number, width: int) -> Number:
    """Return an unsigned number; `meant` stays but where it is below zero."""
    cut = np.bitwise_and(n.cut, (1 << width) - 1)
    return Number(cut, np.where(n.meant >= 0, n.meant, cut))


def _wrapped(x: Any, width: int) -> Any:
    if width >= 64:
        return np.asarray(x)
    half = 1 << (width - 1)
    return np.bitwise_and(np.asarray(x) + half, (1 << width) - 1) - half if width > 1 else np.bitwise_and(x, 1)


def _fits(name: str, numbers: list[Number]) -> bool:
    sizes = [max((float(np.abs(x).max()) for x in (g.cut, g.meant) if x.size), default=0.0) for g in numbers]
    if name == "arith.shli":
        return bool(sizes[0] * 2.0 ** min(sizes[1], 64) < _SAFE)
    most: float = sizes[0] * sizes[1] if name == "arith.muli" else sum(sizes)
    return most < _SAFE
