"""What the names of a file's host code are bound to, and the literal that an expression is in the end.

Relies on `ast` alone. A name is followed where it is bound once: to an assignment, to a default, to what the only call
of its function passes, to an item of a dict that is only read. Anything else is not followed, and is not guessed.
"""

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass

Function = ast.FunctionDef | ast.AsyncFunctionDef
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.Module)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
BUILTINS = frozenset(dir(builtins)) | {"__file__", "__name__", "__doc__"}


@dataclass(frozen=True)
class Items:
    """What a dict that is spread into a call holds."""

    known: dict[str, ast.expr]  # key -> its value
    closed: bool  # whether these are all


class Scopes:
    """The names of a module, scope by scope."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree, self.nodes, self.above = tree, [*ast.walk(tree)], dict[int, ast.AST]()
        for node in self.nodes:
            self.above |= {id(c): node for c in ast.iter_child_nodes(node)}
        self._bound = dict[int, dict[str, list[ast.AST]]]()
        self.loose = set[str]()  # names that a function binds outside of itself
        for node in self.nodes:
            for name in _names(node):
                self._bound.setdefault(id(self._binds_in(node)), {}).setdefault(name, []).append(node)
            if isinstance(node, ast.Global | ast.Nonlocal):
                self.loose |= set(node.names)

    def scope(self, node: ast.AST) -> ast.AST:
        """Return the scope of a node: decorators, defaults and annotations of a function are outside of it."""
        child, above = node, self.above.get(id(node))
        while above is not None:
            outside = isinstance(above, Function | ast.ClassDef) and child not in above.body
            inside = not outside or (isinstance(above, Function) and child is above.args)
            if isinstance(above, (*_SCOPES, *_COMPREHENSIONS)) and inside and not _default(above, child, node):
                return above
            child, above = above, self.above.get(id(above))
        return self.tree

    def bindings(self, name: str, at: ast.AST) -> list[ast.AST]:
        """Return the nodes that bind a name as seen from a place, in its nearest scope; empty: nothing in the file."""
        scope = own = self.scope(at)
        while True:
            binders = self._bound.get(id(scope), {}).get(name)
            if binders and (scope is own or not isinstance(scope, ast.ClassDef)):
                return binders
            if scope is self.tree:
                return []
            scope = self.scope(scope)

    def latest(self, name: ast.Name) -> list[ast.AST]:
        """Return the nodes that may have bound a name where it is read.

        It is one where plain statements of a module bind it again and again, as `k = jit(k)` does. Functions are taken
        to run after all of them.
        """
        binders = self.bindings(name.id, name)
        places = [self._in_module(b) for b in binders]
        if len(binders) < 2 or name.id in self.loose or None in places:
            return binders
        here = self._in_module(name) if self.scope(name) is self.tree else None
        last = len(self.tree.body) if here is None else here
        before = [b for b, place in zip(binders, places, strict=True) if place is not None and place < last]
        return before[-1:] or binders

    def _in_module(self, node: ast.AST) -> int | None:
        """Which statement of the module a node stands in, with nothing between them that has statements of its own."""
        while (above := self.above.get(id(node))) is not None:
            if above is self.tree:
                return next((n for n, s in enumerate(self.tree.body) if s is node), None)
            if isinstance(above, ast.stmt) and not isinstance(above, ast.Assign | ast.AnnAssign | ast.Expr):
                return None
            node = above
        return None

    def bound(self, name: str, at: ast.AST) -> bool:
        """Tell whether a name means something at a place."""
        return name in BUILTINS or bool(self.bindings(name, at)) or name in self.loose

    def value(self, name: ast.Name) -> ast.expr | None:
        """Return what the only assignment of a name gives it; None where there is none, or something else binds it."""
        binders = self.bindings(name.id, name)
        if len(binders) != 1 or name.id in self.loose:
            return None
        if isinstance(binders[0], ast.arg):
            return self._argument(binders[0])
        return self.assigned(binders[0])

    def literal(self, value: ast.expr) -> ast.Constant | None:
        """Return the integer literal that an expression is; None where it is anything else."""
        for _ in range(20):  # a name may be bound to itself in a loop of functions
            if isinstance(value, ast.Constant):
                return value if type(value.value) is int else None
            step = self.value(value) if isinstance(value, ast.Name) else self._item(value)
            if step is None:
                return None
            value = step
        return None

    def items(self, value: ast.expr) -> Items:
        """Return what a dict holds, as far as its text tells; one that is not only read is not followed."""
        if isinstance(value, ast.Name):
            bound_to = self.value(value) if self._only_read(value) else None
            return self.items(bound_to) if isinstance(bound_to, ast.Dict | ast.Call) else Items({}, False)
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "dict":
            closed = not value.args and all(k.arg for k in value.keywords)
            return Items({k.arg: k.value for k in value.keywords if k.arg}, closed)
        if not isinstance(value, ast.Dict):
            return Items({}, False)
        last = max((i for i, k in enumerate(value.keys) if k is None), default=-1)  # what follows it wins
        pairs = list(zip(value.keys, value.values, strict=True))[last + 1 :]
        entries = {k.value: v for k, v in pairs if isinstance(k, ast.Constant) and isinstance(k.value, str)}
        return Items(entries, last < 0 and len(entries) == len(pairs))

    def loads(self, name: str, at: ast.AST) -> list[ast.Name]:
        """Return every place that reads what a name is bound to, as it is seen from one."""
        meant = self.bindings(name, at)
        every = (n for n in self.nodes if isinstance(n, ast.Name) and n.id == name)
        return [n for n in every if isinstance(n.ctx, ast.Load) and self.bindings(n.id, n) == meant]

    def assigned(self, bound: ast.AST) -> ast.expr | None:
        """Return what a plain assignment gives to the name that a node binds, also as one of several: `a, b = 1, 2`."""
        above = self.above.get(id(bound))
        match above, self.above.get(id(above)):
            case ast.Assign(targets=[ast.Name()], value=value) | ast.AnnAssign(target=ast.Name(), value=value), _:
                return value
            case ast.Tuple(elts=names), ast.Assign(targets=[ast.Tuple()], value=ast.Tuple(elts=values)):
                plain = all(isinstance(n, ast.Name) for n in names) and not any(
                    isinstance(v, ast.Starred) for v in values
                )
                return values[[id(n) for n in names].index(id(bound))] if plain and len(names) == len(values) else None
        return None

    def _item(self, value: ast.expr) -> ast.expr | None:
        """`config["BLOCK"]` of a dict that is only read."""
        if not isinstance(value, ast.Subscript) or not isinstance(value.slice, ast.Constant):
            return None
        return self.items(value.value).known.get(str(value.slice.value)) if isinstance(value.value, ast.Name) else None

    def _only_read(self, name: ast.Name) -> bool:
        return all(_reads(self.above.get(id(n)), n) for n in self.loads(name.id, name))

    def _argument(self, parameter: ast.arg) -> ast.expr | None:
        """What the only call of a function passes as a parameter, or its default where that leaves it out."""
        arguments = self.above.get(id(parameter))
        function = self.above.get(id(arguments)) if arguments is not None else None
        if (
            not isinstance(function, ast.FunctionDef)
            or function.decorator_list
            or parameter.arg in self._written(function)
        ):
            return None
        if isinstance(self.above.get(id(function)), ast.ClassDef):
            return None
        uses = self.loads(function.name, function)
        calls = [c for n in uses if isinstance(c := self.above.get(id(n)), ast.Call) and c.func is n]
        if len(self.bindings(function.name, function)) != 1 or len(calls) != len(uses) or len(calls) > 1:
            return None
        passed = _passed(calls[0], function, parameter.arg) if calls else None
        if isinstance(passed, ast.Starred):
            return None
        return passed or (None if self._mentioned(function, parameter.arg) else default_of(function, parameter.arg))

    def _written(self, function: Function) -> set[str]:
        bound = self._bound.get(id(function), {})
        return {n for n, nodes in bound.items() if len(nodes) > 1}

    def _mentioned(self, function: Function, parameter: str) -> bool:
        """Whether the launcher of a target may be given a parameter: its inputs come as a dict."""
        return function.name == "kernel" and any(
            (isinstance(n, ast.Constant) and n.value == parameter)
            or (
                isinstance(n, ast.keyword)
                and n.arg == parameter
                and isinstance(self.above.get(id(n)), ast.Call)
                and _called(self.above[id(n)]) == "dict"
            )
            for n in self.nodes
        )

    def _binds_in(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.arg):
            return self.above[id(self.above[id(node)])]
        scope = self.scope(node)
        while isinstance(scope, _COMPREHENSIONS) and isinstance(self.above.get(id(node)), ast.NamedExpr):
            scope = self.scope(scope)
        return scope


def default_of(function: Function, parameter: str) -> ast.expr | None:
    """Return the default of a parameter."""
    a = function.args
    plain = [*a.posonlyargs, *a.args]
    given = dict(zip([x.arg for x in plain[len(plain) - len(a.defaults) :]], a.defaults, strict=True))
    given |= {x.arg: d for x, d in zip(a.kwonlyargs, a.kw_defaults, strict=True) if d is not None}
    return given.get(parameter)


def _passed(call: ast.Call, function: Function, parameter: str) -> ast.expr | None:
    """What a call passes as a parameter; a starred expression where it does not tell."""
    spread = [a for a in call.args if isinstance(a, ast.Starred)]
    if spread or any(k.arg is None for k in call.keywords):
        return ast.Starred(call.func, ast.Load())
    places = [x.arg for x in (*function.args.posonlyargs, *function.args.args)]
    named = {k.arg: k.value for k in call.keywords}
    return named.get(parameter) or dict(zip(places, call.args, strict=False)).get(parameter)


def _names(node: ast.AST) -> Iterator[str]:
    """The names that a node itself binds."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.alias(name=name, asname=asname):
            yield asname or name.split(".")[0]
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name
        case ast.MatchMapping(rest=str(name)):
            yield name


def _reads(above: ast.AST | None, name: ast.Name) -> bool:
    match above:
        case ast.keyword(arg=None) | ast.Dict():
            return True
        case ast.Subscript(value=value, ctx=ast.Load()):
            return value is name
    return False


def _default(scope: ast.AST, child: ast.AST, node: ast.AST) -> bool:
    """Whether a node is a default or annotation of a function: these are read outside of it."""
    return isinstance(scope, Function | ast.Lambda) and child is scope.args and not isinstance(node, ast.arg)


def _called(node: ast.AST) -> str:
    return ast.unparse(node.func).split(".")[-1] if isinstance(node, ast.Call) else ""
