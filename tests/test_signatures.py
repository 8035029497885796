"""What one room gives another has a type: no `dict[str, Any]` in a signature that another room uses.

Signatures are arguments and results of functions and of methods, and fields of classes. A function or a class is used
where another room imports it; a method or a field of an imported module, where another room names it.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.test_layers import ROOT, found, modules, room, tree

Names = frozenset[str]
IMPORT = re.compile(r"from (pgo_agent[\w.]*) import (\([^)]*\)|[^\n]+)")  # a hundred times as fast as a parser
NAME, ATTRIBUTE = re.compile(r"(\w+)(?: as (\w+))?"), re.compile(r"(\w*)[])]*\.([A-Za-z_]\w*)")


@cache
def source(path: Path) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def loose(node: ast.expr | None, aliases: Names = frozenset()) -> bool:
    """Whether an annotation holds `dict[str, Any]`, or a name for it."""
    for part in ast.walk(node) if node else ():
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            if any(name in part.value for name in ("dict[str, Any]", *aliases)):
                return True
        elif isinstance(part, ast.Name) and part.id in aliases:
            return True
        elif isinstance(part, ast.Subscript) and isinstance(part.slice, ast.Tuple):
            words = [n.id for n in (part.value, *part.slice.elts) if isinstance(n, ast.Name)]
            if words == ["dict", "str", "Any"]:
                return True
    return False


@cache
def own(path: Path) -> Names:
    """The names that a module gives it."""
    if "dict[str, Any]" not in source(path):
        return frozenset()
    given = (n for n in tree(path).body if isinstance(n, ast.Assign) and isinstance(n.value, ast.Subscript | ast.BinOp))
    return frozenset(t.id for n in given if loose(n.value) for t in n.targets if isinstance(t, ast.Name))


@cache
def aliases(path: Path) -> Names:
    """The names of a module that stand for it, imported ones included."""
    imported = ((other or n, at) for module, named in IMPORT.findall(source(path)) if (at := found(module))
                for n, other in NAME.findall(named) if n in own(at))  # fmt: skip
    return own(path) | {name for name, _ in imported}


class Uses:
    """Which rooms name what."""

    def __init__(self) -> None:
        self.modules, self.names = defaultdict[Path, set[str]](set), defaultdict[tuple[Path, str], set[str]](set)
        self.attributes = defaultdict[str, set[str]](set)
        for path in modules():
            self._read(path, room(path))

    def _read(self, path: Path, where: str) -> None:
        bound, text = dict[str, Path](), source(path)
        for module, named in IMPORT.findall(text):
            for name, other in NAME.findall(named):
                if at := found(f"{module}.{name}"):
                    bound[other or name] = at
                elif at := found(module):
                    self.names[at, name].add(where)
                if at:
                    self.modules[at].add(where)
        for before, name in ATTRIBUTE.findall(text):
            self.attributes[name].add(where)
            if before in bound:
                self.names[bound[before], name].add(where)


def signatures(path: Path, uses: Uses) -> Iterator[tuple[int, str, ast.expr | None]]:
    """The annotations of a module that other rooms rely on: line, name, annotation."""
    here = {room(path)}
    for node in tree(path).body:
        if isinstance(node, ast.FunctionDef) and uses.names[path, node.name] - here:
            yield from ((node.lineno, node.name, a) for a in annotations(node))
        elif isinstance(node, ast.ClassDef) and uses.modules[path] - here:
            yield from members(node, uses.names[path, node.name] - here, uses, here)


def members(c: ast.ClassDef, users: set[str], uses: Uses, here: set[str]) -> Iterator[tuple[int, str, ast.expr | None]]:
    for node in c.body:
        if isinstance(node, ast.FunctionDef):
            special = node.name.startswith("__")
            if users if special else not node.name.startswith("_") and uses.attributes[node.name] - here:
                yield from ((node.lineno, f"{c.name}.{node.name}", a) for a in annotations(node))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
            if not name.startswith("_") and (users or uses.attributes[name] - here):
                yield node.lineno, f"{c.name}.{name}", node.annotation


def annotations(function: ast.FunctionDef) -> Iterator[ast.expr | None]:
    a = function.args
    yield from (x.annotation for x in (*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg) if x)
    yield function.returns


def untyped() -> list[str]:
    uses = Uses()
    return [
        f"{path}:{line} {name}: {ast.unparse(annotation)}"
        for path in modules()
        if "dict[str, Any]" in source(path) or aliases(path)
        for line, name, annotation in signatures(path, uses)
        if annotation and loose(annotation, aliases(path))
    ]


def test_no_signature_between_rooms_holds_an_untyped_dict() -> None:
    assert untyped() == []
