"""Which kernels of a file a candidate changes, by its text: of all others what is known of their launches still holds.

Relies on the syntax tree alone. Where a launcher differs, a kernel may be launched on other sizes and still count as it
was: this only says where few configurations are better spent.
"""

import ast
from collections.abc import Iterator

from pgo_agent.agent.kernel_part import mentioned
from pgo_agent.sandbox import parsing
from pgo_agent.sandbox.target import names_of

_Named = dict[str, list[ast.stmt]]  # top-level name -> the statements that bind it


def changed_kernels(before: str, after: str) -> frozenset[str] | None:
    """Return the names of functions that differ in the second file, mention what does, or are called with it; None: it
    cannot be told.

    Kernels are among them, those that a function makes, too. What both files import is not.
    """
    try:
        old, new = (_named(parsing.module(text)) for text in (before, after))
        changed = {n for n in old.keys() | new.keys() if _text(old.get(n)) != _text(new.get(n))}
    except (SyntaxError, ValueError, RecursionError):
        return None
    touched = {n for n in new if changed & _reached(new, n)}
    if any(" " in n for n in changed | touched):  # a statement that may bind any name, or change any value
        return None
    found = {f for n in touched for s in new[n] for f in _functions(s)}
    for statement in (s for n in touched for s in new[n]):
        launched, names = _launched(statement), mentioned([statement])
        around = isinstance(statement, ast.Assign | ast.AnnAssign)  # triton.autotune(...)(kernel), made(64)
        handed = touched & names - launched  # a kernel may get what changed as an argument
        called = (names if around else set()) | (launched if handed else set())
        reached = {r for n in called & new.keys() for r in _reached(new, n)}
        found |= {f for r in reached for s in new[r] for f in _functions(s)}
    return frozenset(found)


def _named(module: ast.Module) -> _Named:
    found: _Named = {}
    for statement in module.body:
        for name in _bound(statement):
            found.setdefault(name, []).append(statement)
    return found


def _bound(statement: ast.stmt) -> set[str]:
    match statement:
        case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
            return set()  # of the program, which nobody runs here
        case ast.ImportFrom(names=[ast.alias(name="*")]):
            names = set[str]()
        case _:
            names = names_of(statement)
    return names or {f"{type(statement).__name__} {ast.dump(statement)}"}  # no name: it is there or not


def _text(statements: list[ast.stmt] | None) -> list[str]:
    return [ast.dump(s) for s in statements or ()]


def _functions(statement: ast.stmt) -> Iterator[str]:
    return (n.name for n in ast.walk(statement) if isinstance(n, ast.FunctionDef))


def _launched(statement: ast.stmt) -> set[str]:
    """Return the names before a grid, `kernel[grid](...)`, and before a call: they are called, and not handed over."""
    found = set[str]()
    for node in ast.walk(statement):
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Subscript(value=ast.Name(id=name))):
                found.add(name)
    return found


def _reached(named: _Named, name: str) -> set[str]:
    """Return the top-level names that one mentions, and those that they mention, itself among them."""
    found, left = set[str](), [name]
    while left:
        if (next_ := left.pop()) not in found:
            found.add(next_)
            left += [n for n in mentioned(named[next_]) if n in named]
    return found
