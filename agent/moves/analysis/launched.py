"""How the host code of a file launches its kernels: each call that does, and what it gives to which parameter.

It knows `kernel[grid](...)` and `kernel.run(..., grid=grid)`, both also under another name (`launch = kernel[grid]`),
through `functools.partial`, through torch's `wrap_triton`, and through what the host code puts around a kernel
(`k = triton.jit(k)`, `triton.autotune(...)(k)[grid](...)`, heuristics). What stands in a branch that is never taken
counts as not there. Any other use of a kernel is listed as not followed.
Relies on `scopes.py` and `branches.py`. It does not look at what the contract of a target does with kernels.
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pgo_agent.agent.moves.analysis.branches import is_dead
from pgo_agent.agent.moves.analysis.scopes import Function, Scopes
from pgo_agent.sandbox.target import of_contract

LAUNCH_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")  # of triton.Config, beside a kernel's parameters
_WRAPPERS = ("wrap_triton", "capture_triton")
_DECORATORS = ("jit", "heuristics", "autotune")


@dataclass(frozen=True)
class KernelLaunch:
    """One call that launches a kernel."""

    kernel: Function
    call: ast.Call  # where arguments can be added
    positional: tuple[ast.expr, ...]
    keywords: tuple[ast.keyword, ...]  # what a partial was given and the call does not give anew among them
    grid: ast.expr | None
    layers: tuple[ast.Call, ...] = ()  # `autotune` and `heuristics` that host code puts around it, outer first

    @property
    def tuner(self) -> ast.Call | None:
        """Return the call of `autotune` that host code puts around the kernel."""
        return next((c for c in self.layers if tunes(c)), None)


@dataclass(frozen=True)
class HostLaunches:
    launches: tuple[KernelLaunch, ...]  # in the order of the text
    unfollowed: dict[str, str]  # kernel -> a use of it that is not followed, with its line


def launched(tree: ast.Module, scopes: Scopes) -> HostLaunches:
    """Return the launches of a file's own kernels outside of its contract.

    A kernel that is launched under one tuner and elsewhere under another one or none is not followed.
    """
    launches, own = list[KernelLaunch](), kernels(scopes)
    host = [*_host(tree, own)]
    for node in host:
        if isinstance(node, ast.Call) and (launch := _launch(node, scopes)) and not is_dead(node, scopes):
            launches.append(launch)
    launches.sort(key=lambda x: (x.call.lineno, x.call.col_offset))
    around = {k: {tuple(map(id, x.layers)) for x in launches if x.kernel is k} for k in {x.kernel for x in launches}}
    alike = [x for x in launches if len(around[x.kernel]) == 1]
    return HostLaunches(tuple(alike), _unfollowed(host, own, scopes, alike))


def kernels(scopes: Scopes) -> list[Function]:
    """Return the functions of a file that Triton compiles: decorated by `jit`, or given to it."""
    calls = [n for n in scopes.nodes if isinstance(n, ast.Call) and n.args and named(n) == "jit"]
    given = [f for n in calls if (f := _function(n.args[0], scopes)) is not None]
    return [n for n in scopes.nodes if isinstance(n, Function) and (_jitted(n) or n in given)]


def _jitted(function: Function) -> bool:
    return any(named(d) == "jit" for d in function.decorator_list)


def parameters(function: Function) -> list[str]:
    """Return the names of a function's parameters but for `*args` and `**kwargs`."""
    a = function.args
    return [x.arg for x in (*a.posonlyargs, *a.args, *a.kwonlyargs)]


def constexprs(function: Function) -> set[str]:
    """Return parameters that are annotated as compile-time constants."""
    a = function.args
    every = (*a.posonlyargs, *a.args, *a.kwonlyargs)
    return {x.arg for x in every if x.annotation and "constexpr" in ast.unparse(x.annotation)}


def strange(function: Function) -> str:
    """Return a decorator of a kernel that is none of Triton's: what it makes of a launch is not known."""
    unknown = (d for d in function.decorator_list if named(d) not in _DECORATORS)
    return next((ast.unparse(d) for d in unknown if not (isinstance(d, ast.Call) and tunes(d))), "")


def heuristics_of(kernel: Function, layers: Sequence[ast.Call], scopes: Scopes) -> dict[str, ast.expr | None]:
    """Return the parameters that heuristics of a kernel set, and the functions that do where those are known.

    One that reads the parameter that it sets, as `min(args["BLOCK"], 64)` does, leaves it to who launches.
    """
    rules = dict[str, ast.expr | None]()
    decorators = (d for d in kernel.decorator_list if isinstance(d, ast.Call))
    for call in (c for c in (*layers, *decorators) if named(c) == "heuristics"):
        for known in _rules(call, scopes):
            pairs = zip(known.keys, known.values, strict=True) if isinstance(known, ast.Dict) else ()
            rules |= {str(k.value): v for k, v in pairs if isinstance(k, ast.Constant) and not _mentions(v, k.value)}
    return rules


def _rules(call: ast.Call, scopes: Scopes) -> list[ast.expr | None]:
    given = (*call.args, *(k.value for k in call.keywords))
    return [scopes.value(g) if isinstance(g, ast.Name) else g for g in given]


def _mentions(rule: ast.expr, name: object) -> bool:
    return any(isinstance(n, ast.Constant) and n.value == name for n in ast.walk(rule))


def in_gluon(function: Function) -> bool:
    """Tell whether a kernel is written in Gluon."""
    return any("gluon" in ast.unparse(d).split("(")[0].split(".") for d in function.decorator_list)


def named(node: ast.expr) -> str:
    """Return the last name of a decorator or of what is called: `jit` of `@triton.jit(debug=True)`."""
    return ast.unparse(node.func if isinstance(node, ast.Call) else node).split(".")[-1]


def _wrapped(value: ast.expr, scopes: Scopes) -> tuple[Function | None, tuple[ast.Call, ...]]:
    """The kernel that an expression is, with the calls of `autotune` and `heuristics` around it, outer first.

    None where it is no kernel of the file, or may be one of several.
    """
    layers, compiled = list[ast.Call](), False
    for _ in range(10):
        if isinstance(value, ast.Call) and value.args:
            if _wraps(value) and isinstance(value.func, ast.Call):
                layers.append(value.func)
            elif named(value) not in (*_WRAPPERS, "jit"):
                break
            compiled |= named(value) == "jit"
            value = value.args[0]
        elif not isinstance(value, ast.Name):
            break
        elif (own := _function(value, scopes)) is not None:
            return (own, (*layers,)) if compiled or _jitted(own) else (None, ())
        elif (given := _value(value, scopes)) is None:
            break
        else:
            value = given
    return None, ()


def _value(name: ast.Name, scopes: Scopes) -> ast.expr | None:
    """What a name is bound to where it is read; branches that are never taken bind nothing."""
    if (only := scopes.value(name)) is not None:
        return only
    bound = [n for n in scopes.latest(name) if not is_dead(n, scopes)]
    return scopes.assigned(bound[0]) if len(bound) == 1 and name.id not in scopes.loose else None


def tuned_by_host(launches: Sequence[KernelLaunch]) -> dict[Function, ast.Call]:
    """Return the kernels around which host code puts a tuner."""
    return {x.kernel: x.tuner for x in launches if x.tuner is not None}


def tunes(call: ast.Call) -> bool:
    """Tell whether a call is one of `autotune`, or of a library's own that is given `configs` or makes them itself."""
    own = any(k.arg == "configs" for k in call.keywords) or is_closed(call)
    return named(call) == "autotune" or (own and named(call).endswith("autotune"))


def is_closed(call: ast.Call) -> bool:
    """Tell whether a call of a tuner is given nothing: its configurations stand in a function elsewhere."""
    return not call.args and not call.keywords


def _wraps(value: ast.Call) -> bool:
    """Whether a call puts `autotune(...)` or `heuristics(...)` around a kernel."""
    outer = value.func
    return isinstance(outer, ast.Call) and (tunes(outer) or named(outer) == "heuristics") and len(value.args) == 1


def _host(tree: ast.Module, own: Sequence[Function]) -> Iterator[ast.AST]:
    """The nodes of a file but for its contract and the bodies of kernels."""
    waiting: list[ast.AST] = [s for s in tree.body if not of_contract(s)]
    while waiting:
        node = waiting.pop()
        yield node
        inside = isinstance(node, Function) and node in own
        waiting += node.decorator_list if inside and isinstance(node, Function) else ast.iter_child_nodes(node)


def _launch(call: ast.Call, scopes: Scopes) -> KernelLaunch | None:
    subscript = _subscript(call.func, scopes)
    if subscript is not None:
        return _given(subscript.value, call, subscript.slice, scopes)
    if isinstance(call.func, ast.Attribute) and call.func.attr == "run":
        grid = next((k.value for k in call.keywords if k.arg == "grid"), None)
        return _given(call.func.value, call, grid, scopes) if grid is not None else None
    return _of_partial(call, scopes)


def _given(value: ast.expr, call: ast.Call, grid: ast.expr | None, scopes: Scopes) -> KernelLaunch | None:
    kernel, layers = _wrapped(value, scopes)
    rules = [r for c in layers if named(c) == "heuristics" for r in _rules(c, scopes)]
    if kernel is None or not all(isinstance(r, ast.Dict) for r in rules):
        return None  # what unknown heuristics set, nobody else may pass
    return KernelLaunch(kernel, call, (*call.args,), (*call.keywords,), grid, layers)


def _of_partial(call: ast.Call, scopes: Scopes) -> KernelLaunch | None:
    """`partial(kernel[grid], ...)` that is called where it is made, or under the name that it was given."""
    made = scopes.value(call.func) if isinstance(call.func, ast.Name) else call.func
    if not isinstance(made, ast.Call) or named(made) != "partial" or not made.args:
        return None
    subscript = _subscript(made.args[0], scopes)
    launch = _given(subscript.value, call, subscript.slice, scopes) if subscript is not None else None
    if launch is None:
        return None
    given = {k.arg for k in call.keywords}
    keywords = [k for k in made.keywords if k.arg is None or k.arg not in given]
    return replace(launch, positional=(*made.args[1:], *call.args), keywords=(*keywords, *call.keywords))


def _subscript(value: ast.expr, scopes: Scopes) -> ast.Subscript | None:
    if isinstance(value, ast.Name):
        value = scopes.value(value) or value
    return value if isinstance(value, ast.Subscript) else None


def _function(value: ast.expr, scopes: Scopes) -> Function | None:
    """The function of the file that a name is; of several definitions of one name, in branches, the last."""
    bindings = scopes.latest(value) if isinstance(value, ast.Name) else []
    own = [n for n in bindings if isinstance(n, Function)]
    return own[-1] if own and len(own) == len(bindings) else None


def _unfollowed(
    host: Sequence[ast.AST], functions: Sequence[Function], scopes: Scopes, launches: list[KernelLaunch]
) -> dict[str, str]:
    seen = {id(n) for x in launches for n in _chain(x.call, scopes)}
    own = {k.name: k for k in functions}
    listed = dict[str, str]()
    for node in host:
        if not isinstance(node, ast.Name) or id(node) in seen or not isinstance(node.ctx, ast.Load):
            continue
        if node.id not in own or own[node.id] not in scopes.bindings(node.id, node):
            continue
        if not is_dead(node, scopes) and not _is_idle(node, scopes):
            text = ast.unparse(_statement(node, scopes)).splitlines()[0]
            listed.setdefault(node.id, f"line {node.lineno}: {text[:100]}")
    return listed


def _is_idle(node: ast.Name, scopes: Scopes) -> bool:
    """Whether a kernel only gets another name here, which nothing reads."""
    match _statement(node, scopes):
        case ast.Assign(targets=[ast.Name(id=other) as target]) if other != node.id:
            return all(is_dead(n, scopes) for n in scopes.loads(other, target))
    return False


def _chain(call: ast.Call, scopes: Scopes) -> Iterator[ast.AST]:
    """What a launch is made of, over the names that lead to it."""
    waiting, passed = list[ast.AST]([call.func]), set[int]()
    while waiting:
        node = waiting.pop()
        if id(node) in passed:
            continue
        passed.add(id(node))
        yield node
        if isinstance(node, ast.Name) and (given := _value(node, scopes)) is not None:
            waiting.append(given)
        match node:
            case ast.Subscript(value=below) | ast.Attribute(value=below):
                waiting.append(below)
            case ast.Call(args=[first, *_]):
                waiting.append(first)


def _statement(node: ast.AST, scopes: Scopes) -> ast.AST:
    while not isinstance(node, ast.stmt):
        node = scopes.above[id(node)]
    return node
