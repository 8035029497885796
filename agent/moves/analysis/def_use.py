"""Where the names of a function get their values and where these are read: the one def-use analysis of the moves.

By names, without order or branches: what a name may hold at one place, it may hold at all. Relies on libcst. It does
not compute values: `dataflow.py` does, statement by statement.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

import libcst as cst
from pgo_agent.agent.moves.analysis.cst_util import called, names, nodes, parameters, parents, variables, writes

_HINTS = {"max_contiguous", "multiple_of"}
_ASSIGNMENTS = cst.Assign | cst.AugAssign | cst.AnnAssign


class DefUse:
    """The names of one function's body, whose nodes must each stand in one place."""

    def __init__(self, function: cst.FunctionDef) -> None:
        self.function = function
        self.count = assignments(function)
        self.given = set(parameters(function))

    @cached_property
    def above(self) -> dict[int, cst.CSTNode]:
        """Map the id of every node in the body to what it is a part of."""
        return parents(self.function.body)

    def reads(self, name: str) -> Iterator[cst.Name]:
        """Yield the places that read a name, in the order of the text."""
        return (n for n in variables(self.function.body) if n.value == name and not self._is_target(n))

    def through(self, node: cst.CSTNode, allowed: Callable[[cst.CSTNode], bool]) -> cst.CSTNode:
        """Return the first node above that is not one of those through which a value may go."""
        above = self.above[id(node)]
        while allowed(above):
            above = self.above[id(above)]
        return above

    def value(self, x: cst.BaseExpression) -> cst.BaseExpression:
        """Return what a name that is assigned once stands for, without hints around it; anything else itself."""
        if isinstance(x, cst.Name) and self.count[x.value] == 1 and x.value not in self.given:
            for n in nodes(self.function.body):
                if isinstance(n, cst.Assign) and target(n) == x.value:
                    return plain(n.value)
        return x

    def _is_target(self, n: cst.Name) -> bool:
        above = self.above[id(n)]
        return isinstance(above, cst.AssignTarget) or (isinstance(above, cst.AugAssign) and above.target is n)


def assignments(function: cst.FunctionDef) -> Counter[str]:
    """Count how often each name is assigned; a loop's variable counts twice."""
    count = Counter[str]()
    for n in nodes(function.body):
        if isinstance(n, cst.Assign):
            count.update(x for t in n.targets for x in names(t.target))
        elif isinstance(n, cst.AugAssign | cst.AnnAssign | cst.NamedExpr):
            count.update(names(n.target))
        elif isinstance(n, cst.For):
            count.update([*names(n.target)] * 2)
    return count


def sources(body: cst.CSTNode, read: Callable[[cst.CSTNode], set[str]]) -> dict[str, set[str]]:
    """Map each assigned name to the names that its values are computed from. `read`: those of one value."""
    computed = dict[str, set[str]]()
    for node in nodes(body):
        if isinstance(node, _ASSIGNMENTS) and node.value is not None:
            for name in writes(node):
                computed.setdefault(name, set()).update(read(node.value))
    return computed


def reached(start: set[str], edges: Mapping[str, set[str]]) -> set[str]:
    """Return the names from which edges lead on, over any number of steps, the first ones among them."""
    done, waiting = set(start), list(start)
    while waiting:
        more = edges.get(waiting.pop(), set()) - done
        done |= more
        waiting += more
    return done


def plain(value: cst.BaseExpression) -> cst.BaseExpression:
    """Return a value without the hints around it."""
    while isinstance(value, cst.Call) and called(value) in _HINTS and value.args:
        value = value.args[0].value
    return value


def target(x: cst.CSTNode) -> str | None:
    """Return the one name that a statement assigns."""
    match x:
        case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))]):
            return str(name)
    return None
