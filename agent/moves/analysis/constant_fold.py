"""Decides what literals decide: `if True`, `x if False else y`, `not True`, after a helper was inlined.

Relies on libcst. Only `True` and `False` as they stand are looked at.
"""

from collections.abc import Sequence

import libcst as cst
from pgo_agent.agent.moves.analysis.cst_util import Statement, code


def folded(body: Sequence[Statement]) -> list[Statement]:
    """Return the statements with every `if` on a literal replaced by its branch."""
    result: list[Statement] = []
    for s in body:
        done = s.visit(_Fold())
        if isinstance(done, cst.FlattenSentinel):
            result += [x for x in done if isinstance(x, Statement)]
        elif isinstance(done, Statement):
            result.append(done)
    return result


class Branches(cst.CSTTransformer):
    """Replaces an `if` by one of its branches, also where it is an `elif`, which must stay one node."""

    def __init__(self) -> None:
        self._elifs = set[int]()

    def visit_If(self, node: cst.If) -> None:
        if isinstance(node.orelse, cst.If):
            self._elifs.add(id(node.orelse))

    def branch(
        self, original: cst.If, body: cst.BaseSuite
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]:
        if id(original) in self._elifs:
            return cst.Else(body)  # type: ignore[return-value]
        return cst.FlattenSentinel([s for s in body.body if isinstance(s, cst.BaseStatement)])


class _Fold(Branches):
    def leave_UnaryOperation(
        self, original_node: cst.UnaryOperation, updated_node: cst.UnaryOperation
    ) -> cst.BaseExpression:
        text = code(updated_node)
        return cst.Name(str(text == "not False")) if text in ("not True", "not False") else updated_node

    def leave_IfExp(self, original_node: cst.IfExp, updated_node: cst.IfExp) -> cst.BaseExpression:
        test = code(updated_node.test)
        return {"True": updated_node.body, "False": updated_node.orelse}.get(test, updated_node)

    def leave_If(
        self, original_node: cst.If, updated_node: cst.If
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement] | cst.RemovalSentinel:
        test = code(updated_node.test)
        if test == "True":
            return self.branch(original_node, updated_node.body)
        if test != "False":
            return updated_node
        if updated_node.orelse is None:
            return cst.RemoveFromParent()
        if isinstance(updated_node.orelse, cst.Else):
            return self.branch(original_node, updated_node.orelse.body)
        return updated_node.orelse
