"""Writes a kernel that may return at its top without returns: what follows stands in the other branch.

So what a program does can stand in a loop over tiles. Relies on libcst; every statement must be on a line of its own
(`cst_util.spread`). Returns anywhere else stay, and are the caller's to refuse.
"""

from collections.abc import Sequence

import libcst as cst
from pgo_agent.agent.moves.analysis.cst_util import code, lines, nodes, parameters, writes
from pgo_agent.agent.moves.analysis.def_use import target


def without_returns(function: cst.FunctionDef) -> cst.FunctionDef:
    """Return the kernel with `if x: pass`, `else: ...` in place of `if x: return` and all that follows it.

    A return stays where a name from before it is assigned after it (`+=` aside): in a branch its type may not change.
    """
    body = cst.ensure_type(function.body, cst.IndentedBlock)
    return function.with_changes(body=body.with_changes(body=_in_branches(body.body, set(parameters(function)))))


def _in_branches(body: Sequence[cst.BaseStatement], known: set[str]) -> list[cst.BaseStatement]:
    at = next((i for i, s in enumerate(body) if _only_returns(s)), None)
    if at is None or at + 1 == len(body):
        return list(body)
    before = known.union(*(writes(s) for s in body[:at]))
    if before & {name for s in body[at + 1 :] for n in nodes(s) if (name := target(n))}:
        return list(body)
    left = cst.ensure_type(body[at], cst.If)
    rest = cst.Else(cst.IndentedBlock(_in_branches(body[at + 1 :], before)))
    return [*body[:at], left.with_changes(body=cst.IndentedBlock(lines("pass")), orelse=rest)]


def _only_returns(statement: cst.BaseStatement) -> bool:
    match statement:
        case cst.If(
            orelse=None, body=cst.IndentedBlock(body=[cst.SimpleStatementLine(body=[cst.Return(value=value)])])
        ):
            return value is None or code(value) == "None"
    return False
