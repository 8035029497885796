"""Writes parts of a file in a new place: in brackets where they need them there, without commas around.

Relies on libcst; it does not ask what a part means. Text keeps the line breaks that stand between its own brackets.
"""

from collections.abc import Sequence
from typing import TypeVar

import libcst as cst
from pgo_agent.agent.moves.analysis.cst_util import code

Expression = TypeVar("Expression", bound=cst.BaseExpression)
_PRIMARY = cst.Name | cst.Attribute | cst.Call | cst.Subscript | cst.Integer | cst.Float


def bracketed(e: Expression) -> Expression:
    """Return an expression in brackets."""
    return e.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


def operand(e: cst.BaseExpression) -> str:
    """Return an expression as any operator can take it."""
    return _text(e, isinstance(e, _PRIMARY))


def side(e: cst.BaseExpression) -> str:
    """Return an expression as it can stand beside `<`, `=` and `!=`."""
    signed = isinstance(e, cst.UnaryOperation) and not isinstance(e.operator, cst.Not)
    return _text(e, signed or isinstance(e, _PRIMARY | cst.BinaryOperation))


def _text(e: cst.BaseExpression, plain: bool) -> str:
    text = code(e)
    return text if e.lpar or (plain and "\n" not in text) else code(bracketed(e))


def arguments(args: Sequence[cst.Arg]) -> list[str]:
    """Return arguments of a call as text, without what stands between them: commas, comments and line breaks."""
    plain = dict(comma=cst.MaybeSentinel.DEFAULT, whitespace_after_arg=cst.SimpleWhitespace(""))
    return [code(a.with_changes(**plain)) for a in args]
