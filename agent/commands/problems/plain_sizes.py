"""Writes the numbers that a problem's file names in one form: a name, a number, a line.

Files say `height = width = 128`, `m, n = 64, 4096`, `n: int = 2048 * 2` or `shape = (16, 512)`. Only statements of the
module are rewritten, and only where they mean the same afterwards. Relies on `ast`; nothing of the file is run.
"""

import ast
import operator
from collections.abc import Callable, Iterator, Sequence

from pgo_agent.sandbox import parsing

_FOLDED: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.LShift: operator.lshift,
    ast.Pow: operator.pow,
}
MOST = 1 << 40  # of what is computed here


def rewritten(text: str, least: int) -> str:
    """Return the text of a problem with such statements rewritten. `least`: a number in a tuple from here on is named.

    Raises what parsing.module raises for what is no Python.
    """
    body = parsing.module(text).body
    taken = {n.id for n in ast.walk(ast.Module(body, [])) if isinstance(n, ast.Name)}
    lines = text.split("\n")
    for node in reversed(body):
        plain = list(_plain(node, taken, least)) if _alone(node, body) else []
        if plain:
            lines[node.lineno - 1 : node.end_lineno] = [ast.unparse(n) for n in map(ast.fix_missing_locations, plain)]
    return "\n".join(lines)


def _alone(node: ast.stmt, body: Sequence[ast.stmt]) -> bool:
    """Whether no other statement is on its lines."""
    spans = [(n.lineno, n.end_lineno or n.lineno) for n in body if n is not node]
    return all(last < node.lineno or first > (node.end_lineno or node.lineno) for first, last in spans)


def _plain(node: ast.stmt, taken: set[str], least: int) -> Iterator[ast.stmt]:
    """Give the statements that stand for one; none where it stays."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
    if value is None or not targets:
        return
    names = [t.id for t in targets if isinstance(t, ast.Name)]
    if len(names) < len(targets):
        yield from _unpacked(targets, value)
    elif (number := folded(value)) is not None:
        if len(names) > 1 or not isinstance(value, ast.Constant) or isinstance(node, ast.AnnAssign):
            yield _named(names[0], ast.Constant(number))
            yield from (_named(n, ast.Name(names[0], ast.Load())) for n in names[1:])
    elif isinstance(value, ast.Tuple | ast.List) and len(names) == 1:
        yield from _of_elements(names[0], value, taken, least)


def _unpacked(targets: Sequence[ast.expr], value: ast.expr) -> Iterator[ast.stmt]:
    """Give the statements of `m, n = 64, 128`."""
    (names, *more) = targets
    if more or not isinstance(names, ast.Tuple | ast.List) or not isinstance(value, ast.Tuple | ast.List):
        return
    numbers = [folded(v) for v in value.elts]
    plain = [n.id for n in names.elts if isinstance(n, ast.Name)]
    if len(plain) == len(names.elts) == len(numbers):
        yield from (_named(n, ast.Constant(v)) for n, v in zip(plain, numbers, strict=True) if None not in numbers)


def _of_elements(name: str, value: ast.Tuple | ast.List, taken: set[str], least: int) -> Iterator[ast.stmt]:
    """Give the statements of `shape = (16, 512)`: a name for each number that may be a size."""
    numbers = [folded(e) for e in value.elts]
    sizes = {f"{name}_{i}": n for i, n in enumerate(numbers) if n is not None and n >= least}
    if not sizes or sizes.keys() & taken:
        return
    yield from (_named(n, ast.Constant(v)) for n, v in sizes.items())
    elements = [ast.Name(n, ast.Load()) if (n := f"{name}_{i}") in sizes else e for i, e in enumerate(value.elts)]
    yield _named(name, type(value)(elements, ast.Load()))


def folded(value: ast.expr) -> int | None:
    """Return the whole number that an expression of numbers is; None for anything else, and for what is too large."""
    if isinstance(value, ast.Constant):
        return value.value if type(value.value) is int else None
    if not isinstance(value, ast.BinOp) or type(value.op) not in _FOLDED:
        return None
    left, right = folded(value.left), folded(value.right)
    if left is None or right is None or not 0 <= left <= MOST or not 0 <= right <= MOST:
        return None
    if (isinstance(value.op, ast.LShift | ast.Pow) and right > 40) or (
        isinstance(value.op, ast.FloorDiv) and not right
    ):
        return None
    result = _FOLDED[type(value.op)](left, right)
    return result if 0 <= result <= MOST else None


def _named(name: str, value: ast.expr) -> ast.Assign:
    return ast.Assign([ast.Name(name, ast.Store())], value, lineno=1)
