"""Tells which branches of host code are never taken, by its text: a flag that no caller gives is its default.

Relies on `scopes.py`. Tests of constants are decided, and `not`, `and`, `or` of them; any other test is open.
"""

import ast

from pgo_agent.agent.moves.analysis.scopes import Scopes

_OPEN = object()  # a value that the text does not tell


def is_dead(node: ast.AST, scopes: Scopes) -> bool:
    """Return whether a node stands in a branch that is never taken."""
    child, above = node, scopes.above.get(id(node))
    while above is not None:
        if isinstance(above, ast.If | ast.IfExp) and child is not above.test:
            taken = decided(above.test, scopes)
            bodies = above.body if isinstance(above, ast.If) else [above.body]
            if taken is not None and taken != any(child is b for b in bodies):
                return True
        child, above = above, scopes.above.get(id(above))
    return False


def decided(test: ast.expr, scopes: Scopes) -> bool | None:
    """Return what a test comes to; None where the text does not tell."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            below = decided(inner, scopes)
            return None if below is None else not below
        case ast.BoolOp(op=op, values=values):
            parts, ends = [decided(v, scopes) for v in values], isinstance(op, ast.Or)
            if ends in parts:
                return ends
            return None if None in parts else not ends
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _compared(_constant(left, scopes), op, _constant(right, scopes))
    value = _constant(test, scopes)
    return None if value is _OPEN else bool(value)


def _compared(left: object, op: ast.cmpop, right: object) -> bool | None:
    if left is _OPEN or right is _OPEN:
        return None
    match op:
        case ast.Eq() | ast.Is():
            return left == right
        case ast.NotEq() | ast.IsNot():
            return left != right
    return None


def _constant(value: ast.expr, scopes: Scopes) -> object:
    for _ in range(20):
        if isinstance(value, ast.Constant):
            return value.value
        given = scopes.value(value) if isinstance(value, ast.Name) else None
        if given is None:
            return _OPEN
        value = given
    return _OPEN
