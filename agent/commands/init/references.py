"""Takes the reference of a target out of the user's own check: what its result was compared with, as text.

Of `assert_close(softmax(x), torch.softmax(x, 1))` the reference is `torch.softmax(x, 1)`; what that needs of the lines
before it in the same function, and of the test's module, comes with it. Relies on the names and tensors that the check
stood among (`seen.Check`). Where a name means something that the launcher was not given, there is no reference.
"""

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pgo_agent.agent.commands.init import cases as sizing
from pgo_agent.agent.commands.init import program_text
from pgo_agent.agent.commands.init.cases import LARGE
from pgo_agent.agent.commands.init.seen import Call, Check, Made, Tensor, made, tensor
from pgo_agent.agent.commands.init.substitution import Renamed
from pgo_agent.sandbox import parsing

Values = Mapping[str, Any]  # argument -> its value, as JSON holds it
COMMON = (0.0, 1.0, -1.0, 0.5, 2.0)  # floats that mean something else as a rule
CAST = '''
def cast(x, dtype):
    """Return it in a type; in float64, in which the exact result is computed, it stays."""
    return x if x.dtype == torch.float64 else x.to(dtype)
'''
_CASTS = {"float": "torch.float32", "half": "torch.float16", "bfloat16": "torch.bfloat16"}  # methods
_FLOATS = ("torch.float", "torch.half", *_CASTS.values())


@dataclass(frozen=True)
class Expected:
    """The reference of one output: statements, the expression, and what of the test's module both need."""

    body: tuple[str, ...]
    value: str
    module: str
    bounds: Mapping[str, float]  # the tolerance of the user's own check


def expected(
    check: Check,
    nth: int,
    call: Call,
    arguments: Sequence[str],
    outputs: Sequence[Tensor],
    text: str,
    fixed: Mapping[str, Made],
) -> tuple[int, Expected] | None:
    """Return which output of a call a check compares, and the reference that it is compared with.

    None where the check is of nothing that the call gave, or compares it with something that the launcher's arguments
    do not determine. `nth`: how often this line had checked before. `arguments`: those that the reference is given.
    `outputs`: what the call's kernels wrote. `text`: of the file that the check stands in. `fixed`: arguments that the
    launcher gets as they were, by text.
    """
    sides = [tensor(side) for side in check.sides]
    matched = [_output(side, outputs) for side in sides]
    if None not in matched:  # what is expected was copied from what the kernel wrote into, before it did
        matched = [
            m if s is not None and s.storage == outputs[m or 0].storage else None
            for m, s in zip(matched, sides, strict=True)
        ]
    if len(matched) != 2 or (matched[0] is None) == (matched[1] is None):
        return None
    which = matched[0] if matched[0] is not None else matched[1]
    other = sides[0 if matched[0] is None else 1]
    function = program_text.function_at(parsing.module(text), check.function, check.line)
    asked = _compared(function or parsing.module(text), check)
    if which is None or other is None or asked is None:
        return None
    value, actual = asked if matched[0] is None else reversed(asked)
    values = {n: v for n, v in call.given.items() if n in arguments}
    told = {n.id for n in ast.walk(actual) if isinstance(n, ast.Name)}
    site = call.site if call.site and (call.site.file, call.site.function) == (check.file, check.function) else None
    given = _given(check, values, told if site is None else ())
    texts, free = [m.text for m in fixed.values()], (*arguments, *(n for m in fixed.values() for n in m.names))
    given |= {n: m.text for n, v in check.names.items() if n not in given and (m := made(v)) and m.text in texts}
    turn = _turn(function or parsing.module(text), check, nth, given)
    written = {n for n in told & set(given) if (t := tensor(check.names[n])) and t.storage == outputs[which].storage}
    late, since = (written, site.line) if site else (set[str](), 0)
    renamed = Renamed(given, _numbers(values), _whole(values))
    part = program_text.cut(text, function, check.line, [value], renamed, free, turn, late=late, since=since)
    if part is None or part.draws or part.mentions(call.root):
        return None
    lines, (end,) = [Casts().visit(n) for n in part.body], [Casts().visit(v) for v in part.values]
    module = part.module
    if any(mark in module for mark in (*(f".{n}()" for n in _CASTS), ".to(")):
        module = ast.unparse(ast.fix_missing_locations(Casts().visit(parsing.module(module)))) + "\n"
    body = tuple(ast.unparse(n) for n in lines)
    result = ast.unparse(end)
    if other.dtype != outputs[which].dtype:
        result = f"({result}).to({_dtype(outputs[which].dtype, values)})"
    return which, Expected(body, result, module, check.bounds)


def _turn(around: ast.AST, check: Check, nth: int, given: Collection[str]) -> dict[str, str]:
    """Return the variables of the loops around a check: what counts, and is not given, by its number, and those over
    `zip(...)` or a list of values in their nth turn."""
    names = dict[str, str]()
    loops = (n for n in ast.walk(around) if isinstance(n, ast.For) and n.lineno < check.line <= (n.end_lineno or 0))
    for loop in loops:
        counted = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)} - set(given)
        numbers = {n: check.names.get(n, {}).get("plain") for n in counted}
        names |= {n: str(i) for n, i in numbers.items() if type(i) is int}
        zipped = isinstance(loop.iter, ast.Call) and ast.unparse(loop.iter.func) == "zip"
        if zipped and isinstance(loop.iter, ast.Call) and isinstance(loop.target, ast.Tuple):
            pairs = zip(loop.target.elts, loop.iter.args, strict=False)
            names |= {ast.unparse(t): f"{_indexed(of)}[{nth}]" for t, of in pairs}
        elif isinstance(loop.iter, ast.Tuple | ast.List) and nth < len(loop.iter.elts):
            turn = loop.iter.elts[nth]
            if isinstance(loop.target, ast.Tuple) and isinstance(turn, ast.Tuple):
                names |= {ast.unparse(t): ast.unparse(e) for t, e in zip(loop.target.elts, turn.elts, strict=False)}
            elif isinstance(loop.target, ast.Name):
                names[loop.target.id] = ast.unparse(turn)
    return names


def _indexed(value: ast.expr) -> str:
    """Return an expression that can stand before an index."""
    text = ast.unparse(value)
    return text if isinstance(value, ast.Name | ast.Tuple | ast.List | ast.Subscript) else f"list({text})"


def _output(side: Tensor | None, outputs: Sequence[Tensor]) -> int | None:
    """Return which output one side of a comparison is, whole and in any type."""
    if side is None:
        return None
    return next((i for i, o in enumerate(outputs) if o.storage in side.sources and o.shape == side.shape), None)


def _dtype(name: str, values: Values) -> str:
    given = ((n, t) for n, v in values.items() if (t := tensor(v)) is not None)
    return next((f"{n}.dtype" for n, t in given if t.dtype == name), f"torch.{name}")


def _compared(around: ast.AST, check: Check) -> tuple[ast.expr, ast.expr] | None:
    """Return the two sides of a comparison as the program writes them."""
    for node in ast.walk(around):
        if not isinstance(node, ast.expr) or not node.lineno <= check.line <= (node.end_lineno or node.lineno):
            continue
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr=name), args=[other]) if name == check.check:
                return value, other  # a.allclose(b)
            case ast.Call(func=func, args=[one, other, *_]) if ast.unparse(func).rpartition(".")[2] == check.check:
                return one, other
            case ast.BinOp(left=one, op=ast.Sub(), right=other) if check.check == "-":
                return one, other
            case ast.Compare(left=one, ops=[ast.Eq()], comparators=[other]) if check.check == "==":
                return one, other
    return None


def _given(check: Check, values: Values, told: Collection[str]) -> dict[str, str]:
    """Return name at the check -> what it is by the launcher's parameters, as an expression. `told`: names of what the
    kernel gave."""
    result = dict[str, str]()
    given = [(expression(n), t) for name, v in values.items() for n, t in sizing.leaves(name, v)]
    sizes = {size: f"{n}.shape[{i}]" for n, v in values.items() for i, size in _sizes(v)}
    plain = {v["plain"]: n for n, v in values.items() if "plain" in v and type(v["plain"]) in (int, float, str)}
    for name, value in check.names.items():
        t, number = tensor(value), value.get("plain")
        if t is not None and name not in told:
            alike = (n for n, o in given if _same(o, t))
            if (same := next(alike, None) or permuted(t, given)) is not None:
                result[name] = same
        elif name in values and values[name] == value:
            result[name] = name
        elif "list" in value and (same_list := _alike(value, values)):
            result[name] = same_list
        elif type(number) in (int, float) and number in plain:
            result[name] = plain[number]
        elif type(number) is int and number in sizes:
            result[name] = sizes[number]
        elif "dtype_" in value:
            result[name] = f"torch.{value['dtype_']}"
    return result


def _alike(value: Values, values: Values) -> str | None:
    """Return the argument that is a list of the same tensors, or a table of their addresses."""
    return next((n for n, v in values.items() if v.get("list") == value["list"]), None)


def _same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors hold the same elements at the same places: one memory in one order, or a copy of it."""
    if (one.shape, one.dtype) != (other.shape, other.dtype) or not one.sources & other.sources:
        return False
    return one.storage != other.storage or one.stride == other.stride


def expression(leaf: str) -> str:
    """Return a tensor in lists as an expression: `a[0][1]` for `a.0.1`."""
    name, *places = leaf.split(".")
    return name + "".join(f"[{p}]" for p in places)


def permuted(t: Tensor, given: Sequence[tuple[str, Tensor]]) -> str | None:
    """Return a tensor as an argument with its axes in another order."""
    for name, o in given:
        if o.storage != t.storage or len(o.shape) != len(t.shape) or o.dtype != t.dtype:
            continue
        axes = list(zip(o.shape, o.stride, strict=True))
        wanted = list(zip(t.shape, t.stride, strict=True))
        if len(set(axes)) == len(axes) and sorted(axes) == sorted(wanted):
            return f"{name}.permute({', '.join(str(axes.index(w)) for w in wanted)})"
    return None


def _sizes(value: object) -> Iterator[tuple[int, int]]:
    t = tensor(value)
    return enumerate(t.shape) if t is not None else iter(())


class Casts(ast.NodeTransformer):
    """Casts to a shorter float, which would cut off what the exact reference computes in float64."""

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        f = node.func
        if not isinstance(f, ast.Attribute) or node.keywords:
            return node
        to = _CASTS.get(f.attr, "") if not node.args else ""
        if f.attr == "to" and len(node.args) == 1 and (text := ast.unparse(node.args[0])) in _FLOATS:
            to = text
        return ast.copy_location(parsing.expression(f"cast({ast.unparse(f.value)}, {to})"), node) if to else node


def _numbers(values: Values) -> dict[float, str]:
    """Return number -> the size or argument of a call that it is, for numbers that are hardly so by chance."""
    listed = [(size, f"{n}.shape[{i}]") for n, v in values.items() for i, size in _sizes(v) if size >= LARGE]
    plain = [(v["plain"], n) for n, v in values.items() if type(v.get("plain")) is float and v["plain"] not in COMMON]
    return dict(reversed([*_whole(values).items(), *listed, *plain]))


def _whole(values: Values) -> dict[int, str]:
    """Return whole numbers among the arguments -> the first that it is, for numbers that are hardly so by chance."""
    listed = [(i, expression(leaf)) for n, v in values.items() for leaf, i in sizing.numbers(n, v) if i >= LARGE]
    return dict(reversed(listed))
