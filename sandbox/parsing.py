"""Python text -> syntax tree, in one thread at a time: nothing else here calls `ast.parse`.

CPython before 3.11.8 counts the depth of a tree that it makes where all threads see it (its issue 106905). When the
garbage collector lets another thread in that parses as well, one of the two ends with a SystemError. Relies on nothing.
"""

import ast
import warnings
from collections.abc import Iterator, Sequence
from threading import Lock
from typing import Any

_ALONE = Lock()


def module(text: str, name: str = "<unknown>") -> ast.Module:
    """Parse a module. Raises what `ast.parse` raises: SyntaxError, ValueError, MemoryError, RecursionError."""
    with _ALONE:
        return ast.parse(text, name)


def expression(text: str) -> ast.expr:
    """Parse an expression. Raises what `ast.parse` raises."""
    with _ALONE:
        return ast.parse(text, mode="eval").body


def literal(text: str) -> Any:
    """Return the value of a constant, or of a list, tuple, dict or set of such. Raises what `ast.literal_eval`
    raises."""
    with _ALONE:
        return ast.literal_eval(text)


def flat(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a body, those in `with` blocks in place of the blocks."""
    for node in body:
        if isinstance(node, ast.With):
            yield from flat(node.body)
        else:
            yield node


def compiled(text: str) -> ast.Module:
    """Return the tree of a text that compiles to bytecode, too. Raises what `compile` raises: SyntaxError,
    ValueError."""
    with _ALONE, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what Python thinks of a text's style
        tree = ast.parse(text)
        compile(tree, "<text>", "exec", dont_inherit=True)
    return tree
