"""Which names of its module a statement uses."""

import ast

from pgo_agent.agent import free_names
from pgo_agent.agent.commands.init import renaming
from pgo_agent.sandbox import parsing

FUNCTION = """
@decorated(q)
def f(a: T, b=D) -> R:
    import os
    global G
    G = a
    c = b + e
    def g(z):
        return z + c + h
    xs = [i + w for i in a for j in i]
    return os.x, xs, lambda k: k + m + c
"""


def test_parameters_and_local_variables_are_a_functions_own() -> None:
    used = free_names.used(parsing.module(FUNCTION).body)
    assert used == {"decorated", "q", "T", "D", "R", "G", "e", "h", "w", "m"}


def test_a_tree_too_deep_to_follow_uses_all_that_it_mentions() -> None:
    node: ast.expr = ast.Name("x", ast.Load())
    for _ in range(5000):
        node = ast.UnaryOp(ast.USub(), node)
    assert free_names.used([node]) == {"x"}


def test_a_name_of_the_module_is_replaced_and_a_local_one_of_the_same_name_is_not() -> None:
    text = "from m import kernel  # theirs\n\n\ndef é(kernel):  # kernel\n    return kernel\n\n\né(1); kernel(é)\n"
    new = "from m import kernel as k\n\n\ndef é(kernel):  # kernel\n    return kernel\n\n\né(1); k(é)\n"
    assert renaming.renamed(text, {"kernel": "k"}) == new
