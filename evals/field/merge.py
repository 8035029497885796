"""Puts what a person writes by hand into a target: definitions replace those of the same names."""

import ast

from pgo_agent.sandbox import parsing
from pgo_agent.sandbox.target import names_of


def merged(target: str, by_hand: str) -> str:
    """Return the target with the top-level definitions of `by_hand` in place of its own."""
    names = {n for node in parsing.module(by_hand).body for n in _names(node)}
    lines = target.splitlines(keepends=True)
    for node in reversed([n for n in parsing.module(target).body if _names(n) & names]):
        del lines[node.lineno - 1 : node.end_lineno]
    return "".join(lines).rstrip("\n") + "\n\n\n" + by_hand


def lines(by_hand: str) -> int:
    """Return the number of lines that a person wrote: comments and empty lines do not count."""
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in by_hand.splitlines())


def _names(node: ast.stmt) -> set[str]:
    """Return what a statement defines; an import defines nothing that another could take the place of."""
    return set() if isinstance(node, ast.Import | ast.ImportFrom) else names_of(node)
