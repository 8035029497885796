"""Which integers of a kernel cannot be negative: at a negative index a descriptor reads zeros, a pointer does not.

A sign is the set of parameters that must not be negative for it, which a launch can check; None says that nothing is
known. Relies on Triton's integers: `%` has the sign of what is divided, `//` of two numbers that are not negative is
not negative. Follows no names: what is known of them is given.
"""

import ast
from collections.abc import Mapping

from pgo_agent.agent.moves.analysis.index_algebra import HINTS, function_of

Sign = frozenset[str] | None
Signs = Mapping[str, Sign]
NONE: Sign = frozenset()  # not negative, whatever the launch


def sign(node: ast.expr, signs: Signs) -> Sign:
    """Return under which condition an expression is not negative."""
    match node:
        case ast.Constant(value=int(number)):
            return NONE if number >= 0 else None
        case ast.Name(id=name):
            return signs.get(name)
        case ast.BinOp(op=ast.Add() | ast.Mult() | ast.FloorDiv()):
            return every(sign(node.left, signs), sign(node.right, signs))
        case ast.BinOp(op=ast.Mod()):
            return sign(node.left, signs)
        case ast.IfExp():
            return every(sign(node.body, signs), sign(node.orelse, signs))
        case ast.Subscript():
            return sign(node.value, signs)
        case ast.Call():
            return _call(node, signs)
    return None


def every(*signs: Sign) -> Sign:
    """Join conditions: all of them must hold."""
    conditions = [s for s in signs if s is not None]
    return frozenset[str]().union(*conditions) if len(conditions) == len(signs) else None


def least(*signs: Sign) -> Sign:
    """Choose one of several conditions: the one that asks for the least."""
    conditions = [s for s in signs if s is not None]
    return min(conditions, key=lambda s: (len(s), sorted(s))) if conditions else None


def positive(node: ast.expr, signs: Signs, sizes: set[str]) -> bool:
    """Tell whether a number is known to be above zero: a literal, the extent of a range, a product of such."""
    match node:
        case ast.Constant(value=int(number)):
            return number > 0
        case ast.Name(id=name):
            return name in sizes and signs.get(name) == NONE
        case ast.BinOp(op=ast.Mult()):
            return positive(node.left, signs, sizes) and positive(node.right, signs, sizes)
    return ast.unparse(node).startswith("tl.num_programs(")


def _call(node: ast.Call, signs: Signs) -> Sign:
    name, method = function_of(node)
    given = [node.func.value, *node.args] if method and isinstance(node.func, ast.Attribute) else node.args
    if name in ("program_id", "num_programs"):
        return NONE
    cast = name in ("to", "cast") and len(given) == 2 and ast.unparse(given[1]).split(".")[-1] in ("int32", "int64")
    if cast or (name in HINTS and given):
        return sign(given[0], signs)
    if method or node.keywords or not given:
        return None
    every_sign = [sign(a, signs) for a in given]
    return {"cdiv": every, "minimum": every, "min": every, "maximum": least, "max": least}.get(name, _unknown)(
        *every_sign
    )


def _unknown(*_signs: Sign) -> Sign:
    return None
