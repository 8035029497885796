"""Python text -> syntax tree, in one thread at a time: nothing else here calls `ast.parse`.

CPython before 3.11.8 counts the depth of a tree that it makes where all threads see it (its issue 106905). When the
garbage collector lets another thread in that parses as well, one of the two ends with a SystemError. Relies on nothing.
"""

import ast
import tokenize
import warnings
from collections.abc import Iterator, Sequence
from threading import Lock
from typing import Any

_ALONE = Lock()


def module(text: str, name: str = "<unknown>") -> ast.Module:
    """Parse a module. Raises what `ast.parse` raises: SyntaxError, ValueError, MemoryError, RecursionError; SyntaxError
    also for a text whose first lines name an encoding but UTF-8: from a file Python would run another program."""
    _check_encoding(text)
    with _ALONE:
        return ast.parse(text, name)


def _check_encoding(text: str) -> None:
    first = text.split("\n", 2)[:2]
    if any("coding" in line for line in first):
        lines = iter([f"{line}\n".encode("utf-8", "replace") for line in first])
        named, _ = tokenize.detect_encoding(lambda: next(lines, b""))
        if named not in ("utf-8", "utf-8-sig"):
            raise SyntaxError(f"its first lines name the encoding {named}: write UTF-8, and leave that out")


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
    _check_encoding(text)
    with _ALONE, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what Python thinks of a text's style
        tree = ast.parse(text)
        compile(tree, "<text>", "exec", dont_inherit=True)
    return tree
