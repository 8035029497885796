"""Index and pointer arithmetic of a Triton function as polynomials: what a load addresses, and where it is masked.

A value is a polynomial over the scalars of the function (by their names) and index ranges: `@1:BLOCK_N` stands for
0 .. BLOCK_N - 1 along dimension 1. Relies on sympy for the algebra and on `ast` for reading expressions. What is not
index arithmetic raises Unknown with the reason; nothing is guessed.
"""

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import sympy
from pgo_agent.sandbox import parsing

Poly = Any  # sympy.Expr; sympy carries no types
HINTS = ("multiple_of", "max_contiguous", "max_constancy")  # same value
_OPAQUE = ("program_id", "num_programs", "cdiv", "minimum", "maximum", "min", "max")  # scalars of scalars
_BUILTIN = ("min", "max")
_COMPARE = {ast.Lt: (1, 0), ast.LtE: (1, 1), ast.Gt: (-1, 0), ast.GtE: (-1, 1)}  # sign, or-equal


class Unknown(Exception):
    """Why a value is not index arithmetic that can be followed."""


@dataclass(frozen=True)
class Tile:
    """A number or pointer (rank 0), or a tile of them."""

    value: Poly
    rank: int


@dataclass(frozen=True)
class Mask:
    """A conjunction: every one of these tiles is positive, element by element."""

    positive: tuple[Tile, ...]


Value = Tile | Mask
Env = Mapping[str, "Value | Unknown"]


def symbol(text: str) -> Poly:
    """Return the symbol of an integer, by its text."""
    return sympy.Symbol(text, integer=True)


def axis(dimension: int, extent: str) -> Poly:
    """Return the index 0 .. extent - 1 along a dimension."""
    return symbol(f"@{dimension}:{extent}")


def axes(value: Poly) -> dict[int, tuple[Poly, str]]:
    """Map dimensions to index symbol and extent. Raises Unknown where one dimension has ranges of different extents."""
    by_dimension: dict[int, tuple[Poly, str]] = {}
    for s in value.free_symbols:
        if s.name.startswith("@"):
            number, extent = s.name[1:].split(":", 1)
            if int(number) in by_dimension:
                raise Unknown(f"two ranges along dimension {number}")
            by_dimension[int(number)] = s, extent
    return by_dimension


def mentions(held: Value) -> set[str]:
    """Return the names that a value's text would read."""
    values = [t.value for t in held.positive] if isinstance(held, Mask) else [held.value]
    return {n for v in values for s in v.free_symbols for n in identifiers(s.name)}


@cache
def identifiers(text: str) -> frozenset[str]:
    """Return the names in an expression, or in the extent of an index."""
    plain = text.split(":", 1)[1] if text.startswith("@") else text
    return frozenset(n.id for n in ast.walk(parse(plain)) if isinstance(n, ast.Name))


def evaluate(text: str, env: Env) -> Value:
    """Return the value of an expression, which may stand on several lines. Raises Unknown."""
    return _value(parse(text), env)


def parse(text: str) -> ast.expr:
    """Return an expression as it may stand between brackets: over several lines, with comments."""
    return parsing.expression(f"({text}\n)")


def shifted(mask: Mask, rank: int) -> Mask:
    """Return a mask as it meets a tile: Triton adds dimensions in front. Raises Unknown when it has more dimensions."""
    if any(t.rank > rank for t in mask.positive):
        raise Unknown("a mask with more dimensions than its tile")
    return Mask(tuple(_shifted(t, rank) for t in mask.positive))


def tile(text: str, env: Env) -> Tile:
    """Return the number, pointer or tile that an expression is. Raises Unknown."""
    result = evaluate(text, env)
    if isinstance(result, Mask):
        raise Unknown(f"'{text}' is a condition")
    return result


def _value(node: ast.expr, env: Env) -> Value:
    match node:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            return Tile(sympy.Integer(number), 0)
        case ast.Name(id=name):
            return _named(name, env)
        case ast.BinOp(op=ast.BitAnd()):
            return Mask((*_mask(node.left, env).positive, *_mask(node.right, env).positive))
        case ast.BinOp():
            return _arithmetic(node, env)
        case ast.UnaryOp(op=ast.USub()):
            inner = _tile(node.operand, env)
            return Tile(sympy.expand(-inner.value), inner.rank)
        case ast.Compare(ops=[_]):
            return _comparison(node, env)
        case ast.Subscript():
            return _expanded(node, env)
        case ast.Call():
            return _call(node, env)
    raise Unknown(f"'{ast.unparse(node)}' is not index arithmetic")


def _named(name: str, env: Env) -> Value:
    held = env.get(name, Unknown(f"nothing is known of {name}"))
    if isinstance(held, Unknown):
        raise held
    return held


def _tile(node: ast.expr, env: Env) -> Tile:
    result = _value(node, env)
    if isinstance(result, Mask):
        raise Unknown(f"'{ast.unparse(node)}' is a condition")
    return result


def _mask(node: ast.expr, env: Env) -> Mask:
    result = _value(node, env)
    if isinstance(result, Tile):
        raise Unknown(f"'{ast.unparse(node)}' is not a comparison of indices")
    return result


def _arithmetic(node: ast.BinOp, env: Env) -> Tile:
    left, right = _tile(node.left, env), _tile(node.right, env)
    if isinstance(node.op, ast.FloorDiv | ast.Mod):
        if left.rank or right.rank:
            raise Unknown(f"'{ast.unparse(node)}' divides a tile of indices")
        return Tile(symbol(ast.unparse(node)), 0)
    left, right = _broadcast(left, right)
    operations: dict[type, Callable[[Poly, Poly], Poly]] = {
        ast.Add: lambda a, b: a + b,
        ast.Sub: lambda a, b: a - b,
        ast.Mult: lambda a, b: a * b,
    }
    if type(node.op) not in operations:
        raise Unknown(f"'{ast.unparse(node)}' is not index arithmetic")
    return Tile(sympy.expand(operations[type(node.op)](left.value, right.value)), left.rank)


def _broadcast(a: Tile, b: Tile) -> tuple[Tile, Tile]:
    """Both with the higher rank: Triton adds dimensions in front."""
    rank = max(a.rank, b.rank)
    return _shifted(a, rank), _shifted(b, rank)


def _shifted(t: Tile, rank: int) -> Tile:
    return t if t.rank == rank else _moved(t, {d: d + rank - t.rank for d in range(t.rank)}, rank)


def _moved(t: Tile, places: Mapping[int, int], rank: int) -> Tile:
    named = {s: axis(places[d], extent) for d, (s, extent) in axes(t.value).items()}
    return Tile(t.value.subs(named, simultaneous=True), rank)


def _comparison(node: ast.Compare, env: Env) -> Mask:
    kind = _COMPARE.get(type(node.ops[0]))
    if kind is None:
        raise Unknown(f"'{ast.unparse(node)}' is not a comparison of order")
    left, right = _broadcast(_tile(node.left, env), _tile(node.comparators[0], env))
    sign, or_equal = kind
    return Mask((Tile(sympy.expand(sign * (right.value - left.value) + or_equal), left.rank),))


def _expanded(node: ast.Subscript, env: Env) -> Value:
    """`x[:, None]`: new dimensions of size one."""
    inner = _value(node.value, env)
    items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    places, place = {}, 0
    for at, item in enumerate(items):
        if isinstance(item, ast.Slice) and item.lower is item.upper is item.step is None:
            places[place], place = at, place + 1
        elif not (isinstance(item, ast.Constant) and item.value is None):
            raise Unknown(f"'{ast.unparse(node)}' picks elements")
    tiles = inner.positive if isinstance(inner, Mask) else (inner,)
    if any(t.rank != place for t in tiles):
        raise Unknown(f"'{ast.unparse(node)}' does not name all dimensions")
    moved = tuple(_moved(t, places, len(items)) for t in tiles)
    return Mask(moved) if isinstance(inner, Mask) else moved[0]


def _call(node: ast.Call, env: Env) -> Value:
    name, method = function_of(node)
    given = [node.func.value, *node.args] if method and isinstance(node.func, ast.Attribute) else node.args
    plain = not node.keywords and not any(isinstance(a, ast.Starred) for a in node.args)
    if name == "arange" and plain and len(given) == 2 and ast.unparse(given[0]) == "0":
        return Tile(axis(0, ast.unparse(given[1])), 1)
    if name in HINTS and given:
        return _value(given[0], env)
    if name in ("to", "cast") and plain and len(given) == 2:
        return _cast(node, given[0], ast.unparse(given[1]), env)
    if name in _OPAQUE and not method:
        if any(_tile(a, env).rank for a in (*node.args, *(k.value for k in node.keywords))):
            raise Unknown(f"'{ast.unparse(node)}' is a tile")
        return Tile(symbol(ast.unparse(node)), 0)
    raise Unknown(f"'{ast.unparse(node)}' is not index arithmetic")


def _cast(node: ast.Call, value: ast.expr, kind: str, env: Env) -> Tile:
    """The same value in 64 bits. In other types a value may change, or a pointer count in other steps."""
    result = _tile(value, env)
    if kind.split(".")[-1] == "int64":
        return result
    if kind.split(".")[-1] == "int32" and result.rank == 0:
        return Tile(symbol(ast.unparse(node)), 0)
    raise Unknown(f"'{ast.unparse(node)}' is a cast that may change the value")


def function_of(node: ast.Call) -> tuple[str, bool]:
    """Return the name of the function of Triton's language that is called, and whether it is a method of a value."""
    head, _, name = ast.unparse(node.func).rpartition(".")
    if head in ("tl", "tl.math", "triton.language", "language", "triton"):
        return name, False
    return (name, True) if head else (name if name in _BUILTIN else "", False)
