"""The text of launches: numbers in it that are sizes become sizes, and numbers that choose how to launch stay.

A block size may equal a size by chance, so what a launch gives for `tl.constexpr` stays, as do divisors and numbers
that have a name. Relies on `substitution.Renamed`.
"""

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from pgo_agent.agent.commands.init.substitution import Renamed

_DIVIDING = ("cdiv", "next_power_of_2", "ceil_div")
Constants = Mapping[str, tuple[frozenset[str], frozenset[int]]]  # kernel -> its constants by name and by place


def constants(launches: Sequence[Mapping[str, Any]]) -> Constants:
    """Return which arguments of the launched kernels are no values at run time."""
    found = dict[str, tuple[frozenset[str], frozenset[int]]]()
    for launch in launches:
        names = list(launch["args"])
        fixed = [i for i, n in enumerate(names) if n in launch["constants"]]
        found[launch["kernel"]] = frozenset(launch["constants"]), frozenset(fixed)
    return found


class LaunchText(Renamed, ast.NodeTransformer):
    """Names by expressions, and numbers by sizes where they are none by chance."""

    def __init__(self, given: Mapping[str, str], sizes: Mapping[int, str], fixed: Constants) -> None:
        super().__init__(given, {float(n): text for n, text in sizes.items()})
        self.fixed = fixed

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        if isinstance(node.value, ast.Constant):
            return node
        self.generic_visit(node)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.BinOp:
        node.left = self.visit(node.left)
        if not (isinstance(node.op, ast.FloorDiv | ast.Div | ast.Mod) and isinstance(node.right, ast.Constant)):
            node.right = self.visit(node.right)
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        named = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if isinstance(node.func, ast.Subscript):
            return self._launch(node)
        if named in _DIVIDING:
            node.args = [self.visit(a) if i == 0 or not isinstance(a, ast.Constant) else a for i, a in _listed(node)]
            return node
        self.generic_visit(node)
        return node

    def _launch(self, node: ast.Call) -> ast.Call:
        node.func = self.visit(node.func)
        kernel = ast.unparse(node.func).partition("[")[0].rpartition(".")[2]
        names, places = self.fixed.get(kernel, (frozenset(), frozenset()))
        node.args = [self._given(a, i in places) for i, a in _listed(node)]
        for k in node.keywords:
            k.value = self._given(k.value, k.arg in names or (k.arg or "").startswith("num_"))
        return node

    def _given(self, value: ast.expr, fixed: bool) -> ast.expr:
        """Return an argument; a number that is fixed stays."""
        return value if fixed and isinstance(value, ast.Constant) else self.visit(value)


def _listed(node: ast.Call) -> list[tuple[int, ast.expr]]:
    return list(enumerate(node.args))
