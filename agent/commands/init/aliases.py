"""What the names in a host function stand for, by its text: views of tensors, and values made of other names.

Nothing is executed; order, branches, containers and attributes are not followed.
"""

import ast
from collections.abc import Collection, Iterator

SIZES = frozenset({"shape", "size", "stride", "numel", "dtype", "device", "dim", "ndim", "item", "element_size"})
VIEWS = frozenset(
    {"view", "reshape", "flatten", "transpose", "permute", "squeeze", "unsqueeze", "T", "mT", "t", "data"}
)
Bound = tuple[str, ast.expr]  # a name, and what it is bound to


def derived(function: ast.FunctionDef, stored: Collection[str]) -> set[str]:
    """Return names that are bound to something computed from `stored`, the tensors that kernels store to."""
    bound = [(name, made_of(value)) for name, value in assigned(function)]
    result = set(stored)
    while grown := {name for name, names in bound if names & result} - result:
        result |= grown
    return result - set(stored)


def copied_to(function: ast.FunctionDef, sources: Collection[str]) -> Iterator[str]:
    """Yield the tensors into which the host copies one of `sources`, by `x.copy_(y)` or `x[...] = y`."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "copy_":
            into, value = node.func.value, node.args[0] if node.args else None
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            into, value = node.targets[0], node.value
        else:
            continue
        if value is not None and made_of(value) & set(sources):
            yield root(into)


def made_of(node: ast.AST) -> set[str]:
    """Return the names in an expression, except those of which it takes only a size or a type."""
    if isinstance(node, ast.Attribute) and node.attr in SIZES:
        return set()
    names = {node.id} if isinstance(node, ast.Name) else set[str]()
    return names.union(*(made_of(child) for child in ast.iter_child_nodes(node)))


def root(node: ast.expr) -> str:
    """Return the name that `x`, `x.view(...)` or `x.data` begins with."""
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def numbers(function: ast.FunctionDef) -> set[str]:
    """Return names that are bound to sizes of tensors, or to values computed from sizes alone."""
    names = set[str]()
    for node in (n for n in ast.walk(function) if isinstance(n, ast.Assign)):
        value = node.value
        sized = isinstance(value, ast.Attribute) and value.attr in SIZES
        called = isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in SIZES
        if sized or called or (isinstance(value, ast.Subscript) and not made_of(value)):
            names |= {n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
    return names


def views_of(function: ast.FunctionDef) -> dict[str, str]:
    """Return names that are bound once, to a view of another name: name -> that name."""
    bound = list(assigned(function))
    names = [name for name, _ in bound]
    return {n: of for n, v in bound if names.count(n) == 1 and (of := _viewed(v)) not in ("", n)}


def _viewed(node: ast.expr) -> str:
    """Return the name that `x.view(...)`, `x[0]` or `x` alone is a view of; empty for anything else."""
    if isinstance(node, ast.Subscript):
        return _viewed(node.value)
    if isinstance(node, ast.Call) and not isinstance(node.func, ast.Name):
        return _viewed(node.func)
    if isinstance(node, ast.Attribute) and node.attr in VIEWS:
        return _viewed(node.value)
    return node.id if isinstance(node, ast.Name) else ""


def base(name: str, views: dict[str, str], tensors: Collection[str]) -> str:
    """Return which of the tensors a name is a view of; the name itself when it is a view of none."""
    of, seen = name, {name}
    while of not in tensors and views.get(of, of) not in seen:
        of = views[of]
        seen.add(of)
    return of if of in tensors else name


def assigned(function: ast.FunctionDef) -> Iterator[Bound]:
    """Yield names with the expressions that they are bound to; of tuples, when both sides are written out."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _pairs(target, node.value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            yield from _pairs(node.target, node.value)


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[Bound]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for t, v in zip(target.elts, value.elts, strict=True):
            yield from _pairs(t, v)
