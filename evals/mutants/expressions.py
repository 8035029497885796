"""Operators of mutation on expressions: constants, arithmetic, comparisons, names, types.

Each is a function of a place that yields pairs: a span of the text, and what to write there.
"""

import ast
import re
from collections.abc import Iterator, Mapping

from pgo_agent.evals.mutants.sites import Site

Pair = tuple[tuple[int, int], str]

LARGE = 16  # a power of two from here on is a tile's size: one more would only fail to build
LITTLE = 1.001  # a factor that only a look at small differences sees
LAUNCH = {"num_stages", "num_warps", "num_ctas", "maxnreg"}
_ARITHMETIC: Mapping[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "%"),
    ast.Mod: ("%", "//"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.BitXor: ("^", "&"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
}
_COMPARISONS: Mapping[type[ast.cmpop], tuple[str, ...]] = {
    ast.Lt: ("<", "<=", ">="),
    ast.LtE: ("<=", "<", ">"),
    ast.Gt: (">", ">=", "<="),
    ast.GtE: (">=", ">", "<"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
}
_OFF = {"<": (" - 1",), "<=": (" + 1",), ">": (" + 1",), ">=": (" - 1",)}  # the other way is an operator above
_TYPES = {"float32": "float16", "int64": "int32", "float64": "float32", "bfloat16": "float16"}


def constant(s: Site) -> Iterator[Pair]:
    """Yield a number that is a little or much larger or smaller; what is launched with is `launch`'s and `tile`'s."""
    value = s.node.value if isinstance(s.node, ast.Constant) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or _launched(s) or _axis_of_the_launch(s):
        return
    span = s.text.span(s.node)
    if isinstance(value, float):
        yield from ((span, repr(v)) for v in ((1.0,) if value == 0 else (2 * value, LITTLE * value, 0.0)))
    elif value >= LARGE and value & (value - 1) == 0:
        yield from ((span, str(v)) for v in (2 * value, value // 2))
    else:
        yield span, str(value + 1)
        if value > 0:
            yield span, str(value - 1)


def _axis_of_the_launch(s: Site) -> bool:
    return isinstance(s.parent, ast.Call) and s.of(s.parent.func).endswith(("program_id", "num_programs"))


def launch(s: Site) -> Iterator[Pair]:
    """Yield another number of warps or of stages: the compiler's matter."""
    if _launched(s) in LAUNCH:
        yield from _sized(s)


def tile(s: Site) -> Iterator[Pair]:
    """Yield another number for a parameter in capitals: mostly the size of a tile."""
    if _launched(s) and _launched(s) not in LAUNCH:
        yield from _sized(s)


def _sized(s: Site) -> Iterator[Pair]:
    value = s.node.value if isinstance(s.node, ast.Constant) else None
    if isinstance(value, bool) or not isinstance(value, int):
        return
    by_one = _launched(s) == "num_stages" or value & (value - 1)
    yield from (
        (s.text.span(s.node), str(v)) for v in ((value + 1, value - 1) if by_one else (2 * value, value // 2)) if v
    )


def _launched(s: Site) -> str:
    """Return the launch parameter that a constant is given to; empty for another one."""
    if isinstance(s.parent, ast.keyword) and s.parent.arg and _parameter(s.parent.arg):
        return s.parent.arg
    if isinstance(s.parent, ast.Dict) and s.node in s.parent.values:
        key = s.parent.keys[s.parent.values.index(s.node)]
        if isinstance(key, ast.Constant) and _parameter(str(key.value)):
            return str(key.value)
    return ""


def _parameter(name: str) -> bool:
    return name in LAUNCH or name.isupper()


def arithmetic(s: Site) -> Iterator[Pair]:
    """Yield another operator between two operands, or in an assignment that adds to a name."""
    if isinstance(s.node, ast.BinOp) and type(s.node.op) in _ARITHMETIC:
        old, new = _ARITHMETIC[type(s.node.op)]
        yield _between(s, s.node.left, s.node.right, old), new
    if isinstance(s.node, ast.AugAssign) and type(s.node.op) in _ARITHMETIC:
        old, new = _ARITHMETIC[type(s.node.op)]
        yield _between(s, s.node.target, s.node.value, f"{old}="), f"{new}="
        yield _between(s, s.node.target, s.node.value, f"{old}="), "="


def operand(s: Site) -> Iterator[Pair]:
    """Yield one operand alone: an offset, a stride, a factor or a part of a mask is dropped; not what all is added
    to."""
    if isinstance(s.node, ast.BinOp) and type(s.node.op) in _ARITHMETIC:
        start, end = s.text.span(s.node)
        first, then = _between(s, s.node.left, s.node.right, _ARITHMETIC[type(s.node.op)][0])
        yield (start, end), s.text.text[start:first].rstrip()
        if not _pointer(s.node.left):
            yield (start, end), s.text.text[then:end].lstrip()


def _pointer(node: ast.AST) -> bool:
    """Return whether it is an address, by its name: without it nothing is left to load from."""
    while isinstance(node, ast.BinOp):
        node = node.left
    return isinstance(node, ast.Name) and (node.id.isupper() or "ptr" in node.id)


def comparison(s: Site) -> Iterator[Pair]:
    """Yield another comparison, or one with a bound that is one off."""
    if not isinstance(s.node, ast.Compare) or type(s.node.ops[0]) not in _COMPARISONS or len(s.node.ops) > 1:
        return
    old, *others = _COMPARISONS[type(s.node.ops[0])]
    right = s.node.comparators[0]
    yield from ((_between(s, s.node.left, right, old), new) for new in others)
    end = s.text.span(s.node)[1]
    yield from (((end, end), by) for by in _OFF.get(old, ()))


def logic(s: Site) -> Iterator[Pair]:
    """Yield `and` for `or` and the reverse; a condition turned round."""
    if isinstance(s.node, ast.BoolOp):
        old, new = ("and", "or") if isinstance(s.node.op, ast.And) else ("or", "and")
        yield _between(s, s.node.values[0], s.node.values[1], old), new
    if isinstance(s.node, ast.If | ast.IfExp | ast.While):
        span = s.text.span(s.node.test)
        yield from ((span, new) for new in ("False", "True") if not (isinstance(s.node, ast.While) and new == "True"))


def dtype(s: Site) -> Iterator[Pair]:
    """Yield a narrower type, or a conversion that is not made."""
    if isinstance(s.node, ast.Attribute) and isinstance(s.node.value, ast.Name) and s.node.attr in _TYPES:
        yield s.text.span(s.node), f"{s.node.value.id}.{_TYPES[s.node.attr]}"
    if isinstance(s.node, ast.Call) and isinstance(s.node.func, ast.Attribute) and s.node.func.attr == "to":
        start, end = s.text.span(s.node)
        value = s.text.text[start : s.text.span(s.node.func)[1] - len("to")].rstrip()
        yield (start, end), value.removesuffix(".").rstrip()


def stride(s: Site) -> Iterator[Pair]:
    """Yield the stride of another dimension, or one element more."""
    if not (isinstance(s.node, ast.Name) and "stride" in s.node.id and s.on_gpu and s.function):
        return
    strides = [a.arg for a in s.function.args.args if "stride" in a.arg]
    span = s.text.span(s.node)
    if s.node.id in strides and isinstance(s.node.ctx, ast.Load):
        other = strides[(strides.index(s.node.id) + 1) % len(strides)]
        yield span, other if other != s.node.id else f"({other} + 1)"


def axis(s: Site) -> Iterator[Pair]:
    """Yield a vector laid along the other dimension; another axis of the launch."""
    if isinstance(s.node, ast.Subscript) and s.of(s.node.slice) in ("(:, None)", ":, None", "None, :"):
        yield s.text.span(s.node.slice), "None, :" if s.of(s.node.slice).startswith((":", "(:")) else ":, None"


def _between(s: Site, left: ast.AST, right: ast.AST, symbol: str) -> tuple[int, int]:
    """Return where the operator between two operands stands: around it there are blanks and parentheses only."""
    start, end = s.text.span(left)[1], s.text.span(right)[0]
    match = re.search(re.escape(symbol), s.text.text[start:end])
    if match is None:
        raise ValueError(f"no {symbol} between {s.of(left)} and {s.of(right)}")
    return start + match.start(), start + match.end()
