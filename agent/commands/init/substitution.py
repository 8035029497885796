"""Names and numbers of a user's program by what a target has for them: expressions in place of names in its statements.

Relies on `ast` alone.
"""

import ast
from collections.abc import Collection, Mapping

from pgo_agent.sandbox import parsing


def flattened(dotted: str) -> str:
    return dotted.replace(".", "__")


def _outer(names: Mapping[str, str], function: ast.FunctionDef) -> dict[str, str]:
    """Return those names that do not mean an argument of a function in it."""
    own = {a.arg for a in ast.walk(function) if isinstance(a, ast.arg)}
    return {n: text for n, text in names.items() if n not in own}


class First(ast.NodeTransformer):
    """Attributes that are given by names, and variables of loops by what they were in one turn."""

    def __init__(self, given: Mapping[str, str], turn: Mapping[str, str]) -> None:
        self.given, self.turn = given, turn

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if (text := ast.unparse(node)) in self.given:
            return ast.copy_location(ast.Name(flattened(text), ast.Load()), node)
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if isinstance(node.ctx, ast.Load) and node.id in self.turn:
            return ast.copy_location(parsing.expression(self.turn[node.id]), node)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        around, self.turn = self.turn, _outer(self.turn, node)
        self.generic_visit(node)
        self.turn = around
        return node


class Renamed(ast.NodeTransformer):
    """Names of the program and its numbers, by expressions of the target. What divides whole numbers is hardly a size:
    of those only `divisors` are replaced."""

    def __init__(
        self, given: Mapping[str, str], numbers: Mapping[float, str], divisors: Collection[float] = ()
    ) -> None:
        self.given, self.numbers, self.divisors = dict(given), numbers, divisors

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        node.left = self.visit(node.left)
        by = node.right.value if isinstance(node.right, ast.Constant) else None
        if not isinstance(node.op, ast.FloorDiv | ast.Mod) or by is None or by in self.divisors:
            node.right = self.visit(node.right)
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        number = node.value if isinstance(node.value, int | float) and not isinstance(node.value, bool) else None
        known = None if number is None else self.numbers.get(number)
        return node if known is None else ast.copy_location(parsing.expression(known), node)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        known = self.given.get(node.id)
        if known is None:
            return node
        if isinstance(node.ctx, ast.Load):
            return ast.copy_location(parsing.expression(known), node)
        return ast.copy_location(ast.Name(known, node.ctx), node) if known.isidentifier() else node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.name = self.given.get(node.name, node.name)
        around, self.given = self.given, _outer(self.given, node)
        self.generic_visit(node)
        self.given = around
        return node
