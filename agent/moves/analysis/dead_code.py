"""Takes away what a rewritten loop no longer needs: assignments that nobody reads, and branches that became equal.

Relies on libcst and on plain names; an assignment is only taken away when its value is made of operations that are
known to do nothing but give a value.
"""

import libcst as cst
from pgo_agent.agent.moves.analysis.constant_fold import Branches
from pgo_agent.agent.moves.analysis.cst_util import called, code, nodes, variables, visited

_PURE = {
    "load", "arange", "program_id", "num_programs", "cdiv", "minimum", "maximum", "min", "max", "zeros", "full",
    "multiple_of", "max_contiguous", "max_constancy", "where", "to", "cast", "expand_dims", "broadcast_to", "trans",
    "abs", "int", "float",
}  # fmt: skip


def prune(loop: cst.For, rest: cst.CSTNode) -> cst.For:
    """Return the loop without what neither it nor the rest of the function reads."""
    outside = _read(rest)
    while True:
        done = visited(visited(loop, _Unread(_read(loop, advanced=True) | outside)), _Equal())
        if done.deep_equals(loop):
            return done
        loop = done


def same_branches(line: cst.SimpleStatementLine) -> cst.SimpleStatementLine:
    """Return the statement with conditional expressions of two equal branches replaced by one."""
    return visited(line, _Equal())


def _read(node: cst.CSTNode, *, advanced: bool = False) -> set[str]:
    """Names that a node reads: all but targets of assignments; with `advanced`, also not for `x += ..` alone."""
    targets = set[int]()
    for n in nodes(node):
        if isinstance(n, cst.Assign):
            targets |= {id(t.target) for t in n.targets if isinstance(t.target, cst.Name)}
        elif isinstance(n, cst.AugAssign) and advanced and isinstance(n.target, cst.Name):
            targets.add(id(n.target))
    return {n.value for n in variables(node) if id(n) not in targets}


class _Unread(cst.CSTTransformer):
    def __init__(self, read: set[str]) -> None:
        self.read = read

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.RemovalSentinel:
        if len(updated_node.body) == 1 and self._unread(updated_node.body[0]):
            return cst.RemoveFromParent()
        return updated_node

    def _unread(self, small: cst.BaseSmallStatement) -> bool:
        match small:
            case (
                cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))], value=value)
                | cst.AugAssign(target=cst.Name(value=name), value=value)
            ):
                return name not in self.read and _pure(value)
        return False

    def leave_If(self, original_node: cst.If, updated_node: cst.If) -> cst.BaseStatement | cst.RemovalSentinel:
        if _empty(updated_node.body) and (
            updated_node.orelse is None or _empty(getattr(updated_node.orelse, "body", None))
        ):
            return cst.RemoveFromParent()
        return updated_node


class _Equal(Branches):
    """An `if`, or a conditional expression, whose two branches say the same is one of them."""

    def leave_IfExp(self, original_node: cst.IfExp, updated_node: cst.IfExp) -> cst.BaseExpression:
        return updated_node.body if updated_node.body.deep_equals(updated_node.orelse) else updated_node

    def leave_If(
        self, original_node: cst.If, updated_node: cst.If
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]:
        other = updated_node.orelse
        if isinstance(other, cst.Else) and other.body.deep_equals(updated_node.body) and _pure(updated_node.test):
            return self.branch(original_node, updated_node.body)
        return updated_node


def _pure(value: cst.BaseExpression) -> bool:
    calls = [n for n in nodes(value) if isinstance(n, cst.Call)]
    return all(called(c) in _PURE and "volatile" not in code(c) for c in calls)


def _empty(body: object) -> bool:
    return isinstance(body, cst.IndentedBlock) and not body.body
