"""Operators of mutation on calls and statements: masks, loops, grids, initial values, what is waited for.

Each is a function of a place that yields pairs: a span of the text, and what to write there. `expressions.py` has the
others.
"""

import ast
import itertools
from collections.abc import Iterator, Mapping
from functools import lru_cache

from pgo_agent.evals.mutants.expressions import Pair
from pgo_agent.evals.mutants.sites import Site

_MASKS: Mapping[str, int] = {"load": 1, "store": 2, "atomic_add": 2, "atomic_max": 2, "atomic_min": 2, "atomic_xchg": 2}
_FUNCTIONS = {
    "max": "min", "min": "max", "maximum": "minimum", "minimum": "maximum", "sum": "max", "exp": "exp2",
    "exp2": "exp", "log": "log2", "log2": "log", "rsqrt": "sqrt", "sqrt": "rsqrt", "sigmoid": "exp", "abs": "exp",
    "atomic_add": "atomic_max", "atomic_max": "atomic_add", "floor": "ceil", "ceil": "floor", "cumsum": "cumprod",
}  # fmt: skip
_ORDERS = {"acquire": "relaxed", "release": "relaxed", "acq_rel": "relaxed", "gpu": "cta", "sys": "cta"}
_LANGUAGES = {"tl", "gl", "math", "libdevice"}


def mask(s: Site) -> Iterator[Pair]:
    """Yield a load, store or atomic without its mask; another value, or none, where the mask is off."""
    if not (isinstance(s.node, ast.Call) and s.on_gpu and (place := _MASKS.get(_called(s.node)))):
        return
    if (masked := _argument(s.node, "mask", place)) is not None:
        other = _argument(s.node, "other", place + 1) if _called(s.node) == "load" else None
        yield _without(s, s.node, [a for a in (masked, other) if a is not None])
        if other is not None:
            yield from _others(s, s.node, other)


def _others(s: Site, call: ast.Call, other: ast.expr | ast.keyword) -> Iterator[Pair]:
    value = other.value if isinstance(other, ast.keyword) else other
    yield s.text.span(value), "1.0" if s.of(value) in ("0.0", "0") else "0.0"
    yield _without(s, call, [other])


def _without(s: Site, call: ast.Call, dropped: list[ast.expr | ast.keyword]) -> Pair:
    rest = [s.of(a) for a in (*call.args, *call.keywords) if a not in dropped]
    return s.text.span(call), f"{s.of(call.func)}({', '.join(rest)})"


def _argument(call: ast.Call, name: str, place: int) -> ast.expr | ast.keyword | None:
    keyword = next((k for k in call.keywords if k.arg == name), None)
    return keyword or (call.args[place] if len(call.args) > place else None)


def _called(call: ast.Call) -> str:
    """Return the last name of what is called: load of tl.load."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def loop(s: Site) -> Iterator[Pair]:
    """Yield a loop that leaves out its first or its last turn, or makes one more."""
    if not (isinstance(s.node, ast.For) and isinstance(s.node.iter, ast.Call) and "range" in _called(s.node.iter)):
        return
    start, stop, step = _bounds(s, s.node.iter)
    rest = "".join(f", {s.of(k)}" for k in s.node.iter.keywords)
    name, span = s.of(s.node.iter.func), s.text.span(s.node.iter)
    for first, last in ((f"{start} + {step}", stop), (start, f"{stop} - {step}"), (start, f"{stop} + {step}")):
        yield span, f"{name}({first}, {last}, {step}{rest})"


def _bounds(s: Site, call: ast.Call) -> tuple[str, str, str]:
    arguments = [s.of(a) for a in call.args]
    return (
        ("0", arguments[0], "1")
        if len(arguments) == 1
        else (arguments[0], arguments[1], arguments[2] if len(arguments) > 2 else "1")
    )


def grid(s: Site) -> Iterator[Pair]:
    """Yield one program less or more, dimensions the other way round, a quotient that is rounded down."""
    if isinstance(s.node, ast.Call) and _called(s.node) == "cdiv" and len(s.node.args) == 2:
        over, by = map(s.of, s.node.args)
        yield s.text.span(s.node), f"(({over}) // ({by}))"
    if isinstance(s.node, ast.Tuple) and _of_a_launch(s):
        for element in s.node.elts:
            yield from ((s.text.span(element), f"{s.of(element)} {by}") for by in ("+ 1", "- 1"))
        if len(s.node.elts) > 1:
            yield _swapped(s, s.node.elts[0], s.node.elts[1])
    if isinstance(s.node, ast.Call) and _called(s.node) in ("program_id", "num_programs") and s.node.args:
        yield s.text.span(s.node.args[0]), "1" if s.of(s.node.args[0]) == "0" else "0"


def _of_a_launch(s: Site) -> bool:
    """Return whether it is the grid of kernel[grid](...), written there or as a lambda."""
    if isinstance(s.parent, ast.Lambda):
        return len(s.parent.args.args) == 1
    return isinstance(s.parent, ast.Subscript) and len(s.parents) > 1 and isinstance(s.parents[1], ast.Call)


def _swapped(s: Site, first: ast.AST, second: ast.AST) -> Pair:
    (start, a), (b, end) = s.text.span(first), s.text.span(second)
    return (start, end), f"{s.of(second)}{s.text.text[a:b]}{s.of(first)}"


def initial(s: Site) -> Iterator[Pair]:
    """Yield another value to begin with, or none: memory that is not set to zero."""
    if isinstance(s.node, ast.Call) and s.on_gpu and _called(s.node) in ("zeros", "full", "zeros_like"):
        yield s.text.span(s.node), f"({s.of(s.node)} + 1)"
    if isinstance(s.node, ast.Call) and not s.on_gpu and _called(s.node) in ("zeros", "zeros_like"):
        start, end = s.text.span(s.node.func)
        yield (start, end), s.text.text[start:end].replace("zeros", "empty")
    if isinstance(s.node, ast.UnaryOp) and isinstance(s.node.op, ast.USub):
        yield s.text.span(s.node), "0.0" if s.of(s.node.operand) == 'float("inf")' else f"({s.of(s.node.operand)})"


def function(s: Site) -> Iterator[Pair]:
    """Yield another function; `where` and dots with their arguments changed."""
    if not (isinstance(s.node, ast.Call) and s.on_gpu):
        return
    called, args = _called(s.node), s.node.args
    if called in _FUNCTIONS and isinstance(s.node.func, ast.Attribute) and s.of(s.node.func.value) in _LANGUAGES:
        end = s.text.span(s.node.func)[1]
        yield (end - len(called), end), _FUNCTIONS[called]
    if called == "where" and len(args) == 3:
        yield _swapped(s, args[1], args[2])
        yield from ((s.text.span(s.node), f"({s.of(args[i])})") for i in (1, 2))
    if called == "dot" and len(args) == 3:
        yield _without(s, s.node, [args[2]])
    if called == "trans" and len(args) == 1:
        yield s.text.span(s.node), s.of(args[0])


def arguments(s: Site) -> Iterator[Pair]:
    """Yield two neighbouring arguments of a launch, or of a function that runs on the GPU, the other way round."""
    if not isinstance(s.node, ast.Call):
        return
    callee = s.node.func.value if isinstance(s.node.func, ast.Subscript) else s.node.func
    if isinstance(callee, ast.Name) and callee.id in s.jitted:
        plain = [a for a in s.node.args if not isinstance(a, ast.Starred)]
        yield from (_swapped(s, a, b) for a, b in itertools.pairwise(plain) if s.of(a) != s.of(b))


def statement(s: Site) -> Iterator[Pair]:
    """Yield a statement that is left out: a store, a barrier, a wait, a step of a pointer, a value taken anew."""
    if not s.on_gpu:
        return
    if isinstance(s.node, ast.Expr | ast.AugAssign) or (isinstance(s.node, ast.Assign) and _again(s, s.node)):
        yield s.text.span(s.node), "pass"


def _again(s: Site, node: ast.Assign) -> bool:
    """Return whether the names that it sets have a value before, in the text."""
    assert s.function is not None
    names = {n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
    before = {name for name, line in _stored(s.function) if line < node.lineno}
    return names <= before | {a.arg for a in s.function.args.args}


@lru_cache(maxsize=8)
def _stored(function: ast.FunctionDef) -> list[tuple[str, int]]:
    """Return what a function sets, and on which lines."""
    return [(n.id, n.lineno) for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]


def sync(s: Site) -> Iterator[Pair]:
    """Yield the other phase of a barrier, a weaker order of memory, a smaller scope."""
    if isinstance(s.node, ast.Call) and s.of(s.node.func) == "mbarrier.wait" and len(s.node.args) > 1:
        phase = s.node.args[1]
        yield s.text.span(phase), f"(({s.of(phase)}) ^ 1)"
    if isinstance(s.node, ast.keyword) and s.node.arg in ("sem", "scope") and isinstance(s.node.value, ast.Constant):
        weaker = _ORDERS.get(str(s.node.value.value))
        if weaker:
            yield s.text.span(s.node.value), f'"{weaker}"'
