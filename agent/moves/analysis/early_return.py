"""Writes a kernel that may return at its top without returns: what follows stands under the opposite condition.

So what a program does can stand in a loop over tiles. Relies on libcst; every statement must be on a line of its own
(`cst_util.spread`). Returns anywhere else stay, and are the caller's to refuse.
"""

from collections.abc import Sequence

import libcst as cst
from pgo_agent.agent.moves.analysis.cst_util import code, expression


def without_returns(function: cst.FunctionDef) -> cst.FunctionDef:
    """Return the kernel with `if not (x): ...` in place of `if x: return` and all that follows it."""
    body = cst.ensure_type(function.body, cst.IndentedBlock)
    return function.with_changes(body=body.with_changes(body=_under_conditions(body.body)))


def _under_conditions(body: Sequence[cst.BaseStatement]) -> list[cst.BaseStatement]:
    at = next((i for i, s in enumerate(body) if _only_returns(s)), None)
    if at is None or at + 1 == len(body):
        return list(body)
    left = cst.ensure_type(body[at], cst.If)
    rest = cst.IndentedBlock(_under_conditions(body[at + 1 :]))
    test = expression(f"not ({code(left.test)})")
    return [*body[:at], cst.If(test=test, body=rest, leading_lines=left.leading_lines)]


def _only_returns(statement: cst.BaseStatement) -> bool:
    match statement:
        case cst.If(
            orelse=None, body=cst.IndentedBlock(body=[cst.SimpleStatementLine(body=[cst.Return(value=value)])])
        ):
            return value is None or code(value) == "None"
    return False
