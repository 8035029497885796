"""Which kernels of a file a candidate leaves as they are, by its text: what is known of their launches still holds.

Relies on the syntax tree alone. Where a launcher differs, a kernel may be launched on other sizes and still be as it
was: this only says where few configurations are better spent. Says nothing of kernels that a function makes, and where
in doubt that none is as it was.
"""

import ast
from collections.abc import Iterator

from pgo_agent.sandbox import parsing

_Named = dict[str, ast.stmt]  # top-level name -> the statement that binds it


def unchanged_kernels(before: str, after: str) -> frozenset[str]:
    """Return the kernels that are the same in both files, with all that they mention."""
    try:
        old, new = (_named(parsing.module(text)) for text in (before, after))
        changed = {n for n in old.keys() | new.keys() if _text(old.get(n)) != _text(new.get(n))}
    except (SyntaxError, ValueError, RecursionError):
        return frozenset()
    if any(" " in n for n in changed):  # a statement that may bind any name
        return frozenset()
    return frozenset(n for n in new if _is_kernel(new[n]) and not changed & _reached(new, n))


def _named(module: ast.Module) -> _Named:
    """Raises ValueError for a file with the same name twice, which may mean either at any place."""
    found: _Named = {}
    for statement in module.body:
        for name in _bound(statement):
            if name in found:
                raise ValueError(name)
            found[name] = statement
    return found


def _bound(statement: ast.stmt) -> Iterator[str]:
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            yield from ((a.asname or a.name).split(".")[0] for a in names)
        case ast.Assign(targets=targets):
            yield from (n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case _:
            yield f"{type(statement).__name__} {ast.dump(statement)}"  # no name: it is there or not


def _text(statement: ast.stmt | None) -> str:
    return "" if statement is None else ast.dump(statement)


def _is_kernel(statement: ast.stmt | None) -> bool:
    return isinstance(statement, ast.FunctionDef) and any("jit" in _dotted(d) for d in statement.decorator_list)


def _dotted(decorator: ast.expr) -> str:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(called).rpartition(".")[2]


def _reached(named: _Named, name: str) -> set[str]:
    """Return the top-level names that one mentions, and those that they mention, itself among them."""
    found, left = set[str](), [name]
    while left:
        if (next_ := left.pop()) not in found:
            found.add(next_)
            left += [n.id for n in ast.walk(named[next_]) if isinstance(n, ast.Name) and n.id in named]
    return found
