"""Integers of a kernel that may be unknown: a number, or a term over arguments, program ids and loaded numbers.

Arithmetic is that of MLIR's arith dialect: two's complement of the type's width, kept as signed numbers (i1: 0 and 1).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from pgo_agent.sandbox.ttgir import types
from pgo_agent.sandbox.ttgir.tree import Op


@dataclass(frozen=True)
class Term:
    """An operation on numbers, at least one of them unknown; without operands, an unknown number."""

    op: str  # addi, cmpi.slt, trips, ...; for a leaf: arg, pid, programs, load
    args: "tuple[Number, ...]" = ()
    width: int = 32  # bits of the result
    name: str = ""  # of a leaf: its name in messages
    step: int = 1  # of a leaf: it is known to be a multiple of this
    size: int = 1  # operations and leaves, each as often as it is written out

    def __hash__(self) -> int:  # a term is hashed often, and walking large ones each time would be slow
        return hash((self.op, self.name, self.width, self.size, len(self.args)))

    @property
    def leaf(self) -> bool:
        return self.op in LEAVES


Number: TypeAlias = int | Term
Known = Mapping[Term, int]
LEAVES = frozenset({"arg", "pid", "programs", "load"})
LARGEST = 200  # operations in a term; a larger term is dropped


def wrap(value: int, width: int) -> int:
    """Return the signed number of `width` bits with the same bits."""
    value &= (1 << width) - 1
    return value - (1 << width) if width > 1 and value >> (width - 1) else value


def apply(op: str, args: "tuple[Number, ...]", width: int) -> Number | None:
    """Return the result of an operation: a number where all operands are known, else a term; None: no value."""
    if all(isinstance(a, int) for a in args):
        return _compute(op, [int(a) for a in args if isinstance(a, int)], width)
    if op == "select" and isinstance(args[0], int):
        return args[1] if args[0] else args[2]
    size = 1 + sum(a.size for a in args if isinstance(a, Term))
    return Term(op, args, width, size=size) if size <= LARGEST else None


def evaluate(x: Number, known: Known) -> Number | None:
    """Return the value of a term when some leaves are known."""
    if isinstance(x, int):
        return x
    if x.leaf:
        return known.get(x, x)
    args = [evaluate(a, known) for a in x.args]
    numbers = tuple(a for a in args if a is not None)
    return apply(x.op, numbers, x.width) if len(numbers) == len(args) else None


def leaves(x: Number) -> set[Term]:
    if isinstance(x, int):
        return set()
    return {x} if x.leaf else set().union(*(leaves(a) for a in x.args))


def _compute(op: str, args: list[int], width: int) -> int | None:
    if op.startswith("cmpi."):
        return int(_COMPARE[op[5:]](*_same_sign(op[5:], args)))
    if op == "trips":
        low, high, step = args
        return max(0, -((low - high) // step)) if step > 0 else None
    if op not in _OPS or (op in _DIVIDES and args[1] == 0):
        return None
    if op in _SHIFTS and not 0 <= args[1] < 64:
        return None
    return wrap(_OPS[op](*_same_sign(op, args)), width)


def _same_sign(op: str, args: list[int]) -> list[int]:
    return [a & (1 << 64) - 1 for a in args] if op in _UNSIGNED else args


def _quotient(a: int, b: int) -> int:
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


_UNSIGNED = frozenset({"divui", "remui", "ceildivui", "minui", "maxui", "shrui", "ult", "ule", "ugt", "uge"})
_DIVIDES = frozenset({"divsi", "divui", "remsi", "remui", "ceildivsi", "ceildivui", "floordivsi"})
_SHIFTS = frozenset({"shli", "shrsi", "shrui"})
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    **dict.fromkeys(("slt", "ult"), lambda a, b: a < b),
    **dict.fromkeys(("sle", "ule"), lambda a, b: a <= b),
    **dict.fromkeys(("sgt", "ugt"), lambda a, b: a > b),
    **dict.fromkeys(("sge", "uge"), lambda a, b: a >= b),
}
_OPS: dict[str, Callable[..., int]] = {
    "addi": lambda a, b: a + b,
    "subi": lambda a, b: a - b,
    "muli": lambda a, b: a * b,
    "divsi": _quotient,
    "divui": lambda a, b: a // b,
    "remsi": lambda a, b: a - _quotient(a, b) * b,
    "remui": lambda a, b: a % b,
    "ceildivsi": lambda a, b: -(-a // b),
    "ceildivui": lambda a, b: -(-a // b),
    "floordivsi": lambda a, b: a // b,
    **dict.fromkeys(("minsi", "minui"), min),
    **dict.fromkeys(("maxsi", "maxui"), max),
    "andi": lambda a, b: a & b,
    "ori": lambda a, b: a | b,
    "xori": lambda a, b: a ^ b,
    "shli": lambda a, b: a << b,
    "shrsi": lambda a, b: a >> b,
    "shrui": lambda a, b: a >> b,
    "select": lambda c, a, b: a if c else b,
    "trunci": lambda a: a,
    "index_cast": lambda a: a,
    "extsi": lambda a: a,
    "extsi.i1": lambda a: -a,
    **{f"extui.i{w}": (lambda a, m=(1 << w) - 1: a & m) for w in (1, 8, 16, 32, 64)},
}
KNOWN_OPS = frozenset(_OPS) | {f"cmpi.{name}" for name in _COMPARE}
INTEGER = re.compile(r"i\d+|index")  # types whose values are followed


def integer_result(op: Op, numbers: tuple[Number, ...]) -> Number | None:
    """Return the result of an `arith` operation on integers; None where it is no integer, or not modelled."""
    computed = _as_computed(op)
    return apply(computed[0], numbers, computed[1]) if computed else None


def on_numbers(op: Op) -> Callable[..., int | None] | None:
    """Return an `arith` operation as a function of known numbers; None as for `integer_result`."""
    computed = _as_computed(op)
    if computed is None:
        return None
    kind, width = computed
    return lambda *numbers: _compute(kind, list(numbers), width)


def _as_computed(op: Op) -> tuple[str, int] | None:
    taken, result = next(iter(op.operand_types), ""), next(iter(op.result_types), "")
    return _computed(op.name, next(iter(op.words), ""), taken, result)


@lru_cache(maxsize=4096)
def _computed(name: str, word: str, taken: str, result: str) -> tuple[str, int] | None:
    """Return the operation as `_compute` calls it and the bits of its result, from what the text of an op says."""
    if not INTEGER.fullmatch(result):
        return None
    kind, bits = name.removeprefix("arith."), types.bits(taken) if taken else 64
    named = {
        "cmpi": f"cmpi.{word}",
        "extsi": "extsi.i1" if bits == 1 else "extsi",
        "extui": f"extui.i{bits}",
        "index_castui": "index_cast",
    }
    kind = named.get(kind, kind)
    return (kind, types.bits(result)) if kind in KNOWN_OPS else None
