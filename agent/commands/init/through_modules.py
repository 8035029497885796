"""Functions of other modules that a launcher's text reaches by the module's name: `kernels.add[grid](...)`.

`from . import kernels` and `import ops.kernels as kernels` bind a module, in a file or inside of a function. Where all
that a text takes of such a module is taken into a target, the text says `add[grid](...)`. It reads text and imports
nothing.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Import:
    """One name that an import binds."""

    node: ast.Import | ast.ImportFrom
    alias: ast.alias

    @property
    def name(self) -> str:
        return self.alias.asname or self.alias.name

    @property
    def module(self) -> ast.ImportFrom:
        """What would be imported from, if the name is a module's."""
        if isinstance(self.node, ast.Import):
            return ast.ImportFrom(self.alias.name, [], 0)
        return ast.ImportFrom(".".join(filter(None, (self.node.module, self.alias.name))), [], self.node.level)


def imports(nodes: Sequence[ast.AST]) -> list[Import]:
    """Return the names that imports in statements bind, but for `import a.b`, which binds `a`."""
    found = (n for top in nodes for n in ast.walk(top) if isinstance(n, ast.Import | ast.ImportFrom))
    listed = (Import(n, a) for n in found for a in n.names)
    return [i for i in listed if isinstance(i.node, ast.ImportFrom) or i.alias.asname or "." not in i.alias.name]


def taken(nodes: Sequence[ast.AST], module: str) -> list[ast.Attribute] | None:
    """Return what statements take of a module by its name, in order; None where they use the module otherwise."""
    walked = [n for top in nodes for n in ast.walk(top)]
    uses = [n for n in walked if isinstance(n, ast.Name) and n.id == module]
    found = [
        n for n in walked if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == module
    ]
    plain = len(uses) == len(found) and all(isinstance(n.ctx, ast.Load) for n in found)
    return found if found and plain else None


def bound(nodes: Sequence[ast.AST]) -> set[str]:
    """Return the names that statements bind anywhere inside."""
    walked = [n for top in nodes for n in ast.walk(top)]
    stored = {n.id for n in walked if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    defined = {n.name for n in walked if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    return stored | defined | {n.arg for n in walked if isinstance(n, ast.arg)}


def rewritten(text: str, names: Mapping[ast.Attribute, str], gone: Sequence[Import]) -> str:
    """Return the text with other names for what it takes of modules, and without imports that nothing needs then."""
    edits = [(*_span(n), name) for n, name in names.items()] + list(_without(gone))
    lines = [line.encode() for line in text.split("\n")]
    for (first, begin), (last, end), new in sorted(edits, reverse=True):
        lines[first : last + 1] = [lines[first][:begin] + new.encode() + lines[last][end:]]
    return "\n".join(line.decode() for line in lines)


def _without(gone: Sequence[Import]) -> Iterator[tuple[tuple[int, int], tuple[int, int], str]]:
    """Yield the place of each import that loses names, and what stays of it."""
    for node in dict.fromkeys(i.node for i in gone):
        lost = [i.alias for i in gone if i.node is node]
        stay = [a for a in node.names if a not in lost]
        kind = ast.Import(stay) if isinstance(node, ast.Import) else ast.ImportFrom(node.module, stay, node.level)
        yield (*_span(node), ast.unparse(kind) if stay else "pass")


def _span(node: ast.stmt | ast.expr) -> tuple[tuple[int, int], tuple[int, int]]:
    return (node.lineno - 1, node.col_offset), ((node.end_lineno or 0) - 1, node.end_col_offset or 0)
