"""How a kernel and the grid of its launch use a parameter that is a tile's size, as far as their text tells.

A size may be changed where the grid is divided by it, or where the kernel walks over its data in steps of it. Where a
program holds a whole row in one tile, neither is so, and another size would leave something out. Relies on `ast` and on
`scopes.py`. It proves no results: what a launch with another size computes is for the judge.
"""

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence

from pgo_agent.agent.moves.analysis.launched import KernelLaunch, named
from pgo_agent.agent.moves.analysis.scopes import Function, Scopes

_NAMES = ("block", "tile", "chunk", "split", "rows")
_SHAPED = {"arange", "zeros", "full", "make_block_ptr", "ones"}


def is_tile(kernel: Function, name: str) -> bool:
    """Tell whether a parameter is the size of a tile: something in the kernel is as large, and nothing divides by it.

    What data are divided by is their own format, as the block of a quantization is: no launch may choose it.
    """
    divided = [n for n in ast.walk(kernel) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.FloorDiv | ast.Mod)]
    shaped = any(named(c) in _SHAPED and _reads(c, name) for c in _calls(kernel))
    return shaped and not any(_reads(n.right, name) for n in divided) and any(w in name.lower() for w in _NAMES)


def walked(kernel: Function, name: str) -> bool:
    """Tell whether the kernel walks over its data in steps of a parameter: `range(0, n, BLOCK)`, `cdiv(n, BLOCK)`.

    One that is also multiplied with something else may say where a program begins: that is not for the kernel alone.
    """
    steps = [c.args[2] for c in _calls(kernel) if named(c) in ("range", "static_range") and len(c.args) > 2]
    steps += [c.args[1] for c in _calls(kernel) if named(c) == "cdiv" and len(c.args) > 1]
    return any(_reads(s, name) for s in steps) and not _placed(kernel, name)


def divides(launch: KernelLaunch, name: str, given: ast.expr | None, scopes: Scopes) -> bool:
    """Tell whether the grid of a launch follows a parameter: by `META["BLOCK"]`, or by the name that is passed."""
    for node in _nodes(launch.grid, scopes):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value == name:
            return True
        if isinstance(node, ast.Name) and isinstance(given, ast.Name) and same(node, given, scopes):
            return True
    return False


def mentions(launch: KernelLaunch, given: ast.expr, scopes: Scopes) -> bool:
    """Tell whether the grid of a launch is computed with a name that stands in an expression."""
    own = [n for n in ast.walk(given) if isinstance(n, ast.Name)]
    return any(isinstance(n, ast.Name) and any(same(n, o, scopes) for o in own) for n in _nodes(launch.grid, scopes))


def same(one: ast.Name, other: ast.Name, scopes: Scopes) -> bool:
    """Tell whether two names are bound to one thing of the file."""
    meant = scopes.bindings(one.id, one)
    return one.id == other.id and bool(meant) and meant == scopes.bindings(other.id, other)


def numbers(grid: ast.expr | None, scopes: Scopes) -> set[int]:
    """Return the integers that a grid is computed with: a parameter of that value may stand for one of them.

    A name that is a number itself is none of them: that may be set in one place.
    """
    every = (n for n in _nodes(grid, scopes, literals=False) if isinstance(n, ast.Constant))
    return {n.value for n in every if type(n.value) is int and n.value > 1}


def followed(
    launches: Sequence[KernelLaunch], given: Sequence[Mapping[str, ast.expr]], names: Collection[str], scopes: Scopes
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the parameters that neither a grid nor a loop follows, and those that all grids and a tile follow."""
    kernel, pairs = launches[0].kernel, [*zip(launches, given, strict=True)]
    by_grid = {n for n in names if all(divides(x, n, g.get(n), scopes) for x, g in pairs)}
    walks = {n for n in names if walked(kernel, n)}
    return frozenset(names) - by_grid - walks, frozenset(n for n in by_grid if is_tile(kernel, n))


def _placed(kernel: Function, name: str) -> bool:
    """Whether a parameter is multiplied with a program's place."""
    places = {
        t.id
        for n in ast.walk(kernel)
        if isinstance(n, ast.Assign) and any(named(c) == "program_id" for c in _calls(n.value))
        for t in ast.walk(n)
        if isinstance(t, ast.Name) and isinstance(t.ctx, ast.Store)
    }
    products = [n for n in ast.walk(kernel) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mult)]
    return any(_reads(p, name) and (any(_reads(p, x) for x in places) or _asks(p)) for p in products)


def _asks(node: ast.AST) -> bool:
    return any(named(c) == "program_id" for c in _calls(node))


def _nodes(grid: ast.expr | None, scopes: Scopes, literals: bool = True) -> Iterator[ast.AST]:
    """The nodes of a grid, and of what its names are assigned; `literals`: also of names that are a number."""
    waiting, seen = list[ast.AST]([grid] if grid is not None else []), set[int]()
    while waiting:
        node = waiting.pop()
        number = isinstance(node, ast.Name | ast.Subscript) and scopes.literal(node) is not None
        if id(node) in seen or (number and not literals):
            continue
        seen.add(id(node))
        yield node
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            given = scopes.value(node)
            waiting += [n for n in scopes.bindings(node.id, node) if isinstance(n, Function)]
            waiting += [given] if given is not None else []
        waiting += ast.iter_child_nodes(node)


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    return (n for n in ast.walk(node) if isinstance(n, ast.Call))


def _reads(node: ast.AST, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(node))
