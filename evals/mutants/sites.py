"""The places of a kernel file where something can be changed: nodes of its kernel part, with what stands around them.

The contract is left alone, imports and annotations too. Relies on `ast` for spans and on `agent/kernel_part.py` for
what is the kernel part. It never runs the file.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from pgo_agent.agent import kernel_part


class Text:
    """A source text, by the places that `ast` gives."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._lines = text.split("\n")
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line) + 1)

    def at(self, line: int, column: int) -> int:
        """Return characters before a line (from 1) and column (in bytes, as `ast` counts)."""
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())

    def span(self, node: ast.AST) -> tuple[int, int]:
        line, column, last, end = (getattr(node, n) for n in ("lineno", "col_offset", "end_lineno", "end_col_offset"))
        return self.at(line, column), self.at(last, end)

    def of(self, node: ast.AST) -> str:
        start, end = self.span(node)
        return self.text[start:end]


@dataclass(frozen=True)
class Site:
    """A node, and where it stands."""

    node: ast.AST
    parents: tuple[ast.AST, ...]  # the nearest first
    text: Text
    jitted: frozenset[str]  # functions of the file that a GPU runs

    @property
    def parent(self) -> ast.AST | None:
        return self.parents[0] if self.parents else None

    @cached_property
    def function(self) -> ast.FunctionDef | None:
        return next((p for p in self.parents if isinstance(p, ast.FunctionDef)), None)

    @property
    def on_gpu(self) -> bool:
        """Whether a GPU runs it: a launcher's statements run on the host."""
        return self.function is not None and self.function.name in self.jitted

    def of(self, node: ast.AST) -> str:
        return self.text.of(node)


def sites(source: str) -> Iterator[Site]:
    """Yield every node of the kernel part, statement by statement. Raises what `ast.parse` raises."""
    blocks = kernel_part.blocks(source)
    secret = kernel_part.hidden(blocks)
    statements = [n for i, b in enumerate(blocks) if i not in secret and not b.imports for n in b.nodes]
    jitted = frozenset(n.name for n in statements if isinstance(n, ast.FunctionDef) and _jitted(n))
    text = Text(source)
    for statement in statements:
        for node, parents in _walk(statement, ()):
            yield Site(node, parents, text, jitted)


def _jitted(function: ast.FunctionDef) -> bool:
    return any(isinstance(n, ast.Attribute) and n.attr == "jit" for d in function.decorator_list for n in ast.walk(d))


def _walk(node: ast.AST, parents: tuple[ast.AST, ...]) -> Iterator[tuple[ast.AST, tuple[ast.AST, ...]]]:
    yield node, parents
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "type_comment"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _docstring(child):
                yield from _walk(child, (node, *parents))


def _docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
