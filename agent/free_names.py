"""Which names of its module a statement uses: a function's parameters and local variables are its own.

Relies on `ast` alone. Where scopes leave a doubt (bodies of classes) a name counts as the module's.
"""

import ast
from collections.abc import Iterable, Iterator

_COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def used(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names of the module that nodes load, bind or delete; every name in a tree too deep to tell."""
    return {n.id for n in mentions(nodes)}


def mentions(nodes: Iterable[ast.AST]) -> list[ast.Name]:
    """Return the mentions of names of the module."""
    listed = list(nodes)
    try:
        return list(_all(listed))
    except RecursionError:
        return [n for node in listed for n in ast.walk(node) if isinstance(n, ast.Name)]


def _all(nodes: Iterable[ast.AST]) -> Iterator[ast.Name]:
    for node in nodes:
        if isinstance(node, ast.Name):
            yield node
        elif isinstance(node, _FUNCTIONS):
            yield from _all(_outside(node))
            yield from _inside(node)
        elif isinstance(node, _COMPREHENSIONS):
            first, bound = node.generators[0].iter, _stored(g.target for g in node.generators)  # `first`: outside of it
            yield from _all([first])
            yield from (n for n in _all(c for c in _inner(node) if c is not first) if n.id not in bound)
        else:
            yield from _all(ast.iter_child_nodes(node))


def _outside(function: _FUNCTIONS) -> list[ast.expr]:
    """Return what is computed where a function is defined: decorators, defaults, annotations."""
    a = function.args
    annotations = [p.annotation for p in _parameters(a) if p.annotation]
    extra = [] if isinstance(function, ast.Lambda) else [*function.decorator_list, *filter(None, [function.returns])]
    return [*extra, *a.defaults, *filter(None, a.kw_defaults), *annotations]


def _inside(function: _FUNCTIONS) -> Iterator[ast.Name]:
    body: list[ast.AST] = [function.body] if isinstance(function, ast.Lambda) else list(function.body)
    bound, of_module = {p.arg for p in _parameters(function.args)}, set[str]()
    waiting = list(body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Global):
            of_module |= set(node.names)
        bound |= _binds(node)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda | _COMPREHENSIONS):
            waiting += ast.iter_child_nodes(node)
    yield from (n for n in _all(body) if n.id in of_module or n.id not in bound)


def _binds(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        return {node.id}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(a.asname or a.name).partition(".")[0] for a in node.names}
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    return {node.name} if isinstance(node, ast.ExceptHandler) and node.name else set()


def _inner(node: _COMPREHENSIONS) -> Iterator[ast.AST]:
    yield from (c for c in ast.iter_child_nodes(node) if not isinstance(c, ast.comprehension))
    for generator in node.generators:
        yield from (generator.target, generator.iter, *generator.ifs)


def _stored(targets: Iterable[ast.expr]) -> set[str]:
    return {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}


def _parameters(a: ast.arguments) -> list[ast.arg]:
    return [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]
