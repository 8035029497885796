"""Loops with what is certain left out: their masks, or the conditions that their masks are under.

Relies on `masks.py` for what is certain; statements that would do nothing go, comments of all others stay.
"""

from collections.abc import Sequence

import libcst as cst
import libcst.matchers as m
from pgo_agent.agent.moves.analysis.cst_format import bracketed
from pgo_agent.agent.moves.analysis.cst_util import Statement, code, visited
from pgo_agent.agent.moves.analysis.facts import number
from pgo_agent.agent.moves.analysis.masks import Masks, combined


def without_conditions(loop: cst.For, masks: Masks) -> cst.For:
    """The loop where the conditions that its masks are under hold."""
    return visited(loop, _Settle(masks))


def unmasked(loop: cst.For, masks: Masks) -> cst.For:
    """The loop where nothing is masked."""
    return visited(loop, _Unmask(masks))


class _Settle(cst.CSTTransformer):
    def __init__(self, masks: Masks) -> None:
        self.masks = masks
        self.settled = {id(c.statement): c.holds for c in masks.conditions}

    def leave_If(
        self, original_node: cst.If, updated_node: cst.If
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement] | cst.RemovalSentinel:
        holds = self.settled.get(id(original_node))
        if holds is None:
            return updated_node
        if holds:
            body = _statements(updated_node.body)
        elif isinstance(updated_node.orelse, cst.If):
            return updated_node.orelse.with_changes(leading_lines=updated_node.leading_lines)
        else:
            body = _statements(updated_node.orelse.body) if updated_node.orelse else []
        if not body:
            return cst.RemoveFromParent()
        lines = [*updated_node.leading_lines, *body[0].leading_lines]  # type: ignore[attr-defined]
        return cst.FlattenSentinel([body[0].with_changes(leading_lines=lines), *body[1:]])


class _Unmask(_Settle):
    """Leaves out what is certain where nothing is masked. Statements that would do nothing go."""

    def leave_BinaryOperation(
        self, original_node: cst.BinaryOperation, updated_node: cst.BinaryOperation
    ) -> cst.BaseExpression:
        left, operator, right = original_node.left, original_node.operator, original_node.right
        if isinstance(operator, cst.BitAnd | cst.BitOr):
            neutral = isinstance(operator, cst.BitAnd)
            idle = self.masks.value(left) is neutral, self.masks.value(right) is neutral
        else:
            idle = (
                isinstance(operator, cst.Add) and self._is_zero(left),
                isinstance(operator, cst.Add | cst.Subtract) and self._is_zero(right),
            )
        return updated_node.right if idle[0] else updated_node.left if idle[1] else updated_node

    def _is_zero(self, e: cst.BaseExpression) -> bool:
        """Whether a selection gives zero where nothing is masked."""
        if not isinstance(e, cst.Call) or self.masks.program.function(e) != "where" or len(e.args) != 3:
            return False
        value = self.masks.value(e.args[0].value)
        return value is not None and number(e.args[1 if value else 2].value, {}) == 0

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        if self.masks.program.function(original_node) != "where" or len(original_node.args) != 3:
            return updated_node
        value = self.masks.value(original_node.args[0].value)
        if value is None:
            return updated_node
        kept = updated_node.args[1 if value else 2].value
        simple = isinstance(kept, cst.Name | cst.Call | cst.Subscript) or bool(kept.lpar)
        return kept if simple else bracketed(kept)

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.RemovalSentinel:
        if len(original_node.body) != 1:
            return updated_node
        old, new = original_node.body[0], updated_node.body[0]
        if isinstance(old, cst.Assign) and isinstance(new, cst.Assign) and len(old.targets) == 1:
            target = code(new.targets[0].target)
            idle = self.masks.value(old.value) is not None or target == code(new.value) != code(old.value)
            return cst.RemoveFromParent() if idle else self._plain(updated_node, new)
        if isinstance(old, cst.AugAssign) and isinstance(new, cst.AugAssign):
            return self._augmented(old, new, updated_node)
        return updated_node

    def _plain(self, line: cst.SimpleStatementLine, assign: cst.Assign) -> cst.SimpleStatementLine:
        """`x = (y)`, whose brackets only a selection needed, as `x = y`."""
        value = assign.value
        if not isinstance(value, cst.BinaryOperation) or len(value.lpar) != 1 or "\n" in code(value):
            return line
        return line.with_changes(body=[assign.with_changes(value=value.with_changes(lpar=[], rpar=[]))])

    def _augmented(
        self, old: cst.AugAssign, new: cst.AugAssign, line: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.RemovalSentinel:
        value, operator = self.masks.value(old.value), old.operator
        if isinstance(operator, cst.AddAssign | cst.SubtractAssign) and self._is_zero(old.value):
            return cst.RemoveFromParent()
        if isinstance(operator, cst.BitAndAssign | cst.BitOrAssign):
            neutral = isinstance(operator, cst.BitAndAssign)
            target = cst.ensure_type(old.target, cst.Name)
            before = self.masks.value(target)
            if value is neutral or combined(operator, before, value) is not None:
                return cst.RemoveFromParent()
            if before is neutral:
                return line.with_changes(body=[cst.Assign([cst.AssignTarget(new.target)], new.value)])
        return line

    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        if updated_node.body or not original_node.body:
            return updated_node
        return updated_node.with_changes(body=[cst.SimpleStatementLine([cst.Pass()])])

    def leave_If(
        self, original_node: cst.If, updated_node: cst.If
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement] | cst.RemovalSentinel:
        left = super().leave_If(original_node, updated_node)
        if isinstance(left, cst.If) and left.orelse is None and m.matches(left.body, _NOTHING):
            return cst.RemoveFromParent()
        if isinstance(left, cst.FlattenSentinel):
            left = cst.FlattenSentinel([s for s in left if not m.matches(s, _PASS)])
        return left


_PASS = m.SimpleStatementLine(body=[m.Pass()])
_NOTHING = m.IndentedBlock(body=[_PASS])


def _statements(body: cst.BaseSuite) -> Sequence[Statement]:
    return [s for s in cst.ensure_type(body, cst.IndentedBlock).body if isinstance(s, cst.BaseStatement)]
