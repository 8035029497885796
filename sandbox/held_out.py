"""Takes the held-out cases out of a target's text: what runs in the box can read its own file, and say what it found
there in the words of an exception.

HELD_OUT becomes empty: its assignment, what fills it later (an update, a loop, a call of a function that does), the
helpers that only these use, and the comments above. All other lines keep their numbers. Relies on `ast`; runs nothing.
"""

import ast
from collections.abc import Collection, Iterator

from pgo_agent.sandbox import parsing

NAME = "HELD_OUT"
_READ = frozenset({"len", "list", "dict", "sorted", "set", "tuple", "iter", "max", "min", "sum", "any", "all", "print"})
_DEFINES = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Entangled(Exception):
    """A statement fills HELD_OUT and makes something else that is needed, so that neither can be had alone."""

    def __init__(self, line: int, name: str) -> None:
        super().__init__(f"line {line} fills {NAME} and defines {name}, too")
        self.line, self.name = line, name


def statements(source: str) -> frozenset[str]:
    """Return the statements of a text that tell of held-out cases, as `ast.dump` writes them. Raises what parsing
    raises, and Entangled."""
    return frozenset(map(ast.dump, _hidden(parsing.module(source).body)))


def without(source: str, told: Collection[str]) -> str:
    """Return a text with an empty HELD_OUT, and without these `statements`: of a candidate those of its target are left
    out and no other, or else what is judged would not be what it is."""
    lines, body = source.splitlines(keepends=True), parsing.module(source).body
    for node in (n for n in body if ast.dump(n) in told):
        first, last = _first(node) - 1, node.end_lineno or node.lineno
        beside = _defined(node) - {NAME}
        if beside and NAME in _defined(node) and isinstance(node, ast.Assign):  # it is also a set that is public
            lines[last - 1] = f"{lines[last - 1].rstrip()}; {NAME} = {{}}\n"
            continue
        begins = isinstance(node, ast.Assign | ast.AnnAssign) and NAME in _defined(node)
        shared = [n for n in body if n is not node and _first(n) - 1 < last and (n.end_lineno or 0) > first]
        if shared:  # statements of one line: this one alone goes
            _cut(lines, node, f"{NAME} = {{}}" if begins else "0")
            continue
        lines[first:last] = [f"{NAME} = {{}}\n" if begins else "\n", *["\n"] * (last - first - 1)]
        while first and lines[first - 1].lstrip().startswith("#"):
            first -= 1
            lines[first] = "\n"
    return "".join(lines)


def _cut(lines: list[str], node: ast.stmt, instead: str) -> None:
    """Put other text in the place of a statement that shares its lines with others."""
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    before = lines[first].encode()[: node.col_offset].decode()
    after = lines[last].encode()[node.end_col_offset :].decode()
    lines[first : last + 1] = [before + instead + after, *["\n"] * (last - first)]


def _hidden(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return the statements that fill HELD_OUT, and those that only they use."""
    filling = _functions_that_fill(body)
    hidden = [n for n in body if not isinstance(n, _DEFINES) and _fills(n, filling)]
    needed = {name for n in body if n not in hidden for name in _mentioned(n)}
    for node in hidden:
        both = isinstance(node, ast.Assign) and NAME in _defined(node)
        if not both and (kept := sorted((_defined(node) - {NAME}) & needed)):
            raise Entangled(node.lineno, kept[0])
    while more := [n for n in body if n not in hidden and _serves(n, body, hidden)]:
        hidden += more
    return hidden


def _serves(node: ast.stmt, body: list[ast.stmt], hidden: list[ast.stmt]) -> bool:
    """Whether a statement defines what hidden ones use, and no other does."""
    if not isinstance(node, _DEFINES | ast.Assign | ast.AnnAssign):
        return False
    used = {name for n in hidden for name in _mentioned(n)}
    needed = {name for n in body if n is not node and n not in hidden for name in _mentioned(n)}
    return bool(_defined(node) & used) and not _defined(node) & needed


def _functions_that_fill(body: list[ast.stmt]) -> set[str]:
    """Return the functions that fill HELD_OUT, directly or by a call of one that does."""
    functions = {n.name: n for n in body if isinstance(n, _DEFINES)}
    found = set[str]()
    while more := {name for name, n in functions.items() if name not in found and _fills(n, found)}:
        found |= more
    return found


def _fills(node: ast.stmt, functions: set[str]) -> bool:
    """Whether a statement binds or changes HELD_OUT. `functions`: those that do."""
    for inner in ast.walk(node):
        match inner:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) if name == NAME:
                return True
            case ast.Subscript(value=value, ctx=ast.Store() | ast.Del()) if _root(value) == NAME:
                return True
            case ast.Call(func=function) if _root(function) == NAME or _root(function) in functions:
                return True
            case ast.Call(func=ast.Name(id=called), args=args) if called not in _READ and NAME in map(_root, args):
                return True
    return False


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _defined(node: ast.stmt) -> set[str]:
    """Return the names that a statement binds in the module."""
    if isinstance(node, _DEFINES):
        return {node.name}
    return set(_stored(node))


def _stored(node: ast.AST) -> Iterator[str]:
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            yield inner.id
        if not isinstance(inner, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp | ast.Lambda | _DEFINES):
            yield from _stored(inner)


def _mentioned(node: ast.stmt) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def _first(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(d.lineno for d in decorators)])
