"""Other names for a module's own: the text stays as it is but for them, comments and layout too.

Relies on `agent/free_names.py`: a parameter or a local variable of the same name is another thing, and keeps it.
"""

import ast
import re
from collections.abc import Mapping

from pgo_agent.agent import free_names
from pgo_agent.sandbox import parsing

_DEFINING = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def renamed(text: str, names: Mapping[str, str]) -> str:
    """Return a text with other names for those of its module."""
    tree = parsing.module(text)
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    places = [(n.lineno, n.col_offset, n.id) for n in free_names.mentions(tree.body)]
    places += [_of_definition(n, lines) for n in tree.body if isinstance(n, _DEFINING)]
    for line, column, name in sorted(set(places), reverse=True):
        if name in names:
            before, after = lines[line - 1][:column], lines[line - 1][column + len(name.encode()) :]
            lines[line - 1] = before + names[name].encode() + after
    imports = [n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
    for node in imports:
        _import(node, lines, names)
    return b"".join(lines).decode()


def _of_definition(node: _DEFINING, lines: list[bytes]) -> tuple[int, int, str]:
    found = re.compile(rb"\b(?:def|class)\s+").search(lines[node.lineno - 1], node.col_offset)
    return node.lineno, found.end() if found else node.col_offset, node.name


def _import(node: ast.Import | ast.ImportFrom, lines: list[bytes], names: Mapping[str, str]) -> None:
    """Let an import bind other names."""
    if not any((a.asname or a.name) in names for a in node.names):
        return
    for a in node.names:
        if (bound := a.asname or a.name) in names:
            a.asname = names[bound]
    lines[node.lineno - 1 : node.end_lineno] = [
        ast.unparse(node).encode() + b"\n",
        *[b""] * ((node.end_lineno or node.lineno) - node.lineno),
    ]
