"""Index and pointer arithmetic of a Triton function as polynomials: what a load addresses, and where it is masked.

A value is a polynomial over the scalars of the function (by their names) and index ranges: `@1:BLOCK_N` stands for
0 .. BLOCK_N - 1 along dimension 1. Relies on sympy for the algebra and on `ast` for reading expressions. What is not
index arithmetic raises Unknown with the reason; nothing is guessed.
"""

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy

Poly = Any  # sympy.Expr; sympy carries no types
_TRANSPARENT = ("to", "multiple_of", "max_contiguous", "max_constancy", "cast")  # same value, another type or hint
_OPAQUE = ("program_id", "num_programs", "cdiv", "minimum", "maximum", "min", "max")  # scalars of scalars
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
    return sympy.Symbol(text, integer=True)


def axis(dimension: int, extent: str) -> Poly:
    """The index 0 .. extent - 1 along a dimension."""
    return symbol(f"@{dimension}:{extent}")


def axes(value: Poly) -> dict[int, tuple[Poly, str]]:
    """Dimension -> index symbol and extent. Raises Unknown when one dimension has ranges of different extents."""
    found: dict[int, tuple[Poly, str]] = {}
    for s in value.free_symbols:
        if s.name.startswith("@"):
            number, extent = s.name[1:].split(":", 1)
            if int(number) in found:
                raise Unknown(f"two ranges along dimension {number}")
            found[int(number)] = s, extent
    return found


def evaluate(text: str, env: Env) -> Value:
    """The value of an expression. Raises Unknown."""
    return _value(ast.parse(text, mode="eval").body, env)


def tile(text: str, env: Env) -> Tile:
    found = evaluate(text, env)
    if isinstance(found, Mask):
        raise Unknown(f"'{text}' is a condition")
    return found


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
    found = env.get(name, Unknown(f"nothing is known of {name}"))
    if isinstance(found, Unknown):
        raise found
    return found


def _tile(node: ast.expr, env: Env) -> Tile:
    found = _value(node, env)
    if isinstance(found, Mask):
        raise Unknown(f"'{ast.unparse(node)}' is a condition")
    return found


def _mask(node: ast.expr, env: Env) -> Mask:
    found = _value(node, env)
    if isinstance(found, Tile):
        raise Unknown(f"'{ast.unparse(node)}' is not a comparison of indices")
    return found


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
    return (
        t if t.rank in (0, rank) and t.rank == rank else _moved(t, {d: d + rank - t.rank for d in range(t.rank)}, rank)
    )


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
    found = _value(node.value, env)
    items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    places, place = {}, 0
    for at, item in enumerate(items):
        if isinstance(item, ast.Slice) and item.lower is item.upper is item.step is None:
            places[place], place = at, place + 1
        elif not (isinstance(item, ast.Constant) and item.value is None):
            raise Unknown(f"'{ast.unparse(node)}' picks elements")
    tiles = found.positive if isinstance(found, Mask) else (found,)
    if any(t.rank != place for t in tiles):
        raise Unknown(f"'{ast.unparse(node)}' does not name all dimensions")
    moved = tuple(_moved(t, places, len(items)) for t in tiles)
    return Mask(moved) if isinstance(found, Mask) else moved[0]


def _call(node: ast.Call, env: Env) -> Value:
    name = ast.unparse(node.func).split(".")[-1]
    method = isinstance(node.func, ast.Attribute) and not _module(node.func.value)
    if name == "arange" and len(node.args) == 2 and ast.unparse(node.args[0]) == "0":
        return Tile(axis(0, ast.unparse(node.args[1])), 1)
    if name in _TRANSPARENT and isinstance(node.func, ast.Attribute):
        return _value(node.func.value if method else node.args[0], env)
    if name in _OPAQUE and not method:
        if any(_tile(a, env).rank for a in node.args):
            raise Unknown(f"'{ast.unparse(node)}' is a tile")
        return Tile(symbol(ast.unparse(node)), 0)
    raise Unknown(f"'{ast.unparse(node)}' is not index arithmetic")


def _module(node: ast.expr) -> bool:
    return ast.unparse(node) in ("tl", "tl.math", "triton.language", "language")
