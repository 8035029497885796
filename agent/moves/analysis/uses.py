"""Where the variables of a function are read, what stands around that, and what a name stands for. Relies on libcst."""

from collections import Counter
from collections.abc import Callable, Iterator

import libcst as cst
import libcst.matchers as m
from pgo_agent.agent.moves.analysis.cst_util import called, code, names, nodes, parameters, parts

_HINTS = {"max_contiguous", "multiple_of"}


class Uses:
    """The body of one function, whose nodes must each stand in one place."""

    def __init__(self, function: cst.FunctionDef) -> None:
        self.function = function
        self.above = {id(part): n for n in nodes(function.body) for part in parts(n)}
        self.count = assignments(function)
        self.given = set(parameters(function))

    def reads(self, name: str) -> Iterator[cst.Name]:
        for n in nodes(self.function.body):
            if isinstance(n, cst.Name) and n.value == name and not self._is_target(n) and not self._is_label(n):
                yield n

    def through(self, node: cst.CSTNode, allowed: Callable[[cst.CSTNode], bool]) -> cst.CSTNode:
        """The first node above that is not one of those through which a value may go."""
        above = self.above[id(node)]
        while allowed(above):
            above = self.above[id(above)]
        return above

    def known(self, x: cst.BaseExpression) -> cst.BaseExpression:
        """What a name that is assigned once stands for, without hints around it; anything else itself."""
        if isinstance(x, cst.Name) and self.count[x.value] == 1 and x.value not in self.given:
            for n in nodes(self.function.body):
                if isinstance(n, cst.Assign) and target(n) == x.value:
                    return plain(n.value)
        return x

    def _is_target(self, n: cst.Name) -> bool:
        above = self.above[id(n)]
        return isinstance(above, cst.AssignTarget) or (isinstance(above, cst.AugAssign) and above.target is n)

    def _is_label(self, n: cst.Name) -> bool:
        above = self.above[id(n)]
        attribute = isinstance(above, cst.Attribute) and above.attr is n
        return attribute or (isinstance(above, cst.Arg) and above.keyword is n)


def assignments(function: cst.FunctionDef) -> Counter[str]:
    """How often each name is assigned; a loop's variable often."""
    found = Counter[str]()
    for n in nodes(function.body):
        if isinstance(n, cst.Assign):
            found.update(x for t in n.targets for x in names(t.target))
        elif isinstance(n, cst.AugAssign | cst.AnnAssign | cst.NamedExpr):
            found.update(names(n.target))
        elif isinstance(n, cst.For):
            found.update([*names(n.target)] * 2)
    return found


def plain(value: cst.BaseExpression) -> cst.BaseExpression:
    """A value without the hints around it."""
    while isinstance(value, cst.Call) and called(value) in _HINTS and value.args:
        value = value.args[0].value
    return value


def target(x: cst.CSTNode) -> str | None:
    """The one name that a statement assigns."""
    form = m.Assign(targets=[m.AssignTarget(target=m.Name())])
    return code(x.targets[0].target) if isinstance(x, cst.Assign) and m.matches(x, form) else None
