"""Takes away what a rewritten loop no longer needs: assignments that nobody reads, and branches that became equal.

Relies on libcst and on plain names; an assignment is only taken away when its value has no effect but its name.
"""

import libcst as cst
import libcst.matchers as m
from pgo_agent.agent.moves.syntax import called, names, reads

_EFFECTS = {"store", "atomic_add", "atomic_cas", "atomic_xchg", "atomic_max", "atomic_min", "atomic_and", "atomic_or"}
_EFFECTS |= {"atomic_xor", "device_print", "device_assert", "static_print", "static_assert", "debug_barrier", "assume"}


def prune(loop: cst.For, rest: cst.CSTNode) -> cst.For:
    """The loop without what neither it nor the rest of the function reads."""
    outside = reads(rest)
    while True:
        done = cst.ensure_type(loop.visit(_Unread(_read(loop) | outside)), cst.For)
        done = cst.ensure_type(done.visit(_Equal()), cst.For)
        if done.deep_equals(loop):
            return done
        loop = done


def same_branches(line: cst.SimpleStatementLine) -> cst.SimpleStatementLine:
    """The statement with conditional expressions of two equal branches replaced by one."""
    return cst.ensure_type(line.visit(_Equal()), cst.SimpleStatementLine)


def _read(loop: cst.For) -> set[str]:
    """Names that the loop reads for more than advancing themselves."""
    found = names(loop.iter)
    for line in m.findall(loop.body, m.SimpleStatementLine()):
        for small in cst.ensure_type(line, cst.SimpleStatementLine).body:
            found |= names(small.value) if isinstance(small, cst.AugAssign) else reads(cst.SimpleStatementLine([small]))
    for node in m.findall(loop.body, m.If() | m.For() | m.While()):
        part = node.iter if isinstance(node, cst.For) else node.test  # type: ignore[attr-defined]
        found |= names(part)
    return found


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
                calls = {called(cst.ensure_type(c, cst.Call)) for c in m.findall(value, m.Call())}
                return name not in self.read and not calls & _EFFECTS
        return False

    def leave_If(self, original_node: cst.If, updated_node: cst.If) -> cst.BaseStatement | cst.RemovalSentinel:
        if _empty(updated_node.body) and (
            updated_node.orelse is None or _empty(getattr(updated_node.orelse, "body", None))
        ):
            return cst.RemoveFromParent()
        return updated_node


class _Equal(cst.CSTTransformer):
    """An `if`, or a conditional expression, whose two branches say the same is one of them."""

    def leave_IfExp(self, original_node: cst.IfExp, updated_node: cst.IfExp) -> cst.BaseExpression:
        return updated_node.body if updated_node.body.deep_equals(updated_node.orelse) else updated_node

    def leave_If(
        self, original_node: cst.If, updated_node: cst.If
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]:
        other = updated_node.orelse
        if isinstance(other, cst.Else) and other.body.deep_equals(updated_node.body):
            return cst.FlattenSentinel([s for s in updated_node.body.body if isinstance(s, cst.BaseStatement)])
        return updated_node


def _empty(body: object) -> bool:
    return isinstance(body, cst.IndentedBlock) and not body.body
