"""Takes the reference of a target out of the user's own check: what its result was compared with, as text.

Of `assert_close(softmax(x), torch.softmax(x, 1))` the reference is `torch.softmax(x, 1)`; what that needs of the lines
before it in the same function, and of the test's module, comes with it. Relies on the names and tensors that the check
stood among (`seen.Check`). Where a name means something that the launcher was not given, there is no reference.
"""

import ast
import builtins
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pgo_agent.agent.commands.init.seen import Call, Check, tensor
from pgo_agent.agent.kernel_part import blocks, used_by
from pgo_agent.sandbox import parsing

LARGE = 16  # a number in a reference from here on is taken for the size that it equals
COMMON = (0.0, 1.0, -1.0, 0.5, 2.0)  # floats that mean something else as a rule


@dataclass(frozen=True)
class Expected:
    """The reference of one output: statements, the expression, and what of the test's module both need."""

    body: tuple[str, ...]
    value: str
    module: str
    bounds: Mapping[str, float]  # the tolerance of the user's own check


def expected(check: Check, call: Call, outputs: Sequence[int], text: str) -> Expected | None:
    """Return the reference that a check compares outputs of a call with; None if it has none that can stand alone.

    `outputs`: storages that the call's kernels wrote. `text`: of the file that the check stands in.
    """
    sides = [tensor(side) for side in check.sides]
    written = [side is not None and side.storage in outputs for side in sides]
    if len(written) != 2 or written[0] == written[1]:
        return None
    tree = parsing.module(text)
    function = _around(tree, check)
    asked = _call_at(function or tree, check)
    if asked is None or len(asked.args) < 2:
        return None
    value = asked.args[written.index(False)]
    given = _given(check, call)
    body = _slice(function.body if function else tree.body, value, check.line, set(given))
    renamed = _Renamed(given, _numbers(call))
    nodes = [renamed.visit(n) for n in (*body, value)]
    used = {n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name)}
    bound = {n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    free = used - bound - set(call.given) - set(dir(builtins))
    parts = blocks(text)
    roots = {i for i, b in enumerate(parts) if b.names & free}
    known = set[str]().union(*(parts[i].names for i in roots))
    if free - known or {_root(call)} & used:
        return None
    module = "".join(parts[i].text for i in sorted(used_by(parts, roots)) if not parts[i].names & {"kernel"})
    return Expected(tuple(ast.unparse(n) for n in nodes[:-1]), ast.unparse(nodes[-1]), module, check.bounds)


def _root(call: Call) -> str:
    return call.function.partition(".")[0]


def _around(tree: ast.Module, check: Check) -> ast.FunctionDef | None:
    """Return the innermost function that a check stands in."""
    found = [
        n
        for n in ast.walk(tree)
        if isinstance(n, ast.FunctionDef) and n.lineno <= check.line <= (n.end_lineno or n.lineno)
    ]
    return max((f for f in found if f.name == check.function), key=lambda f: f.lineno, default=None)


def _call_at(around: ast.AST, check: Check) -> ast.Call | None:
    calls = (
        n for n in ast.walk(around) if isinstance(n, ast.Call) and ast.unparse(n.func).rpartition(".")[2] == check.check
    )
    return next((c for c in calls if c.lineno <= check.line <= (c.end_lineno or c.lineno)), None)


def _given(check: Check, call: Call) -> dict[str, str]:
    """Return name at the check -> what it is by the launcher's parameters, as an expression."""
    result = dict[str, str]()
    by_storage = {t.storage: n for n, v in call.given.items() if (t := tensor(v)) is not None}
    sizes = {size: f"{n}.shape[{i}]" for n, v in call.given.items() for i, size in _sizes(v)}
    plain = {v["plain"]: n for n, v in call.given.items() if "plain" in v and type(v["plain"]) in (int, float, str)}
    for name, value in check.names.items():
        t, number = tensor(value), value.get("plain")
        if t is not None and t.storage in by_storage:
            other = tensor(call.given[by_storage[t.storage]])
            if other is not None and other.shape == t.shape and other.stride == t.stride:
                result[name] = by_storage[t.storage]
        elif name in call.given and call.given[name] == value:
            result[name] = name
        elif type(number) in (int, float) and number in plain:
            result[name] = plain[number]
        elif type(number) is int and number in sizes:
            result[name] = sizes[number]
        elif isinstance(value, dict) and "dtype_" in value:
            result[name] = f"torch.{value['dtype_']}"
    return result


def _sizes(value: object) -> Iterator[tuple[int, int]]:
    t = tensor(value)
    return enumerate(t.shape) if t is not None else iter(())


def _slice(body: Sequence[ast.stmt], value: ast.expr, line: int, given: set[str]) -> list[ast.stmt]:
    """Return the assignments before a line that a value needs, in order, down to the names that are given."""
    wanted = {n.id for n in ast.walk(value) if isinstance(n, ast.Name)} - given
    result = list[ast.stmt]()
    for statement in reversed([s for s in body if s.lineno < line]):
        bound = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        if isinstance(statement, ast.Assign | ast.AugAssign | ast.With | ast.For) and bound & wanted:
            result.insert(0, statement)
            wanted = (wanted - (bound if isinstance(statement, ast.Assign) else set())) | (
                {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)} - given
            )
    return result


class _Renamed(ast.NodeTransformer):
    """Names at the check, and numbers that are sizes or arguments of the call, by the launcher's parameters."""

    def __init__(self, given: Mapping[str, str], numbers: Mapping[float, str]) -> None:
        self.given, self.numbers = given, numbers

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        number = node.value if isinstance(node.value, int | float) and not isinstance(node.value, bool) else None
        known = None if number is None else self.numbers.get(number)
        return node if known is None else ast.copy_location(parsing.expression(known), node)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if isinstance(node.ctx, ast.Load) and node.id in self.given:
            return ast.copy_location(parsing.expression(self.given[node.id]), node)
        return node


def _numbers(call: Call) -> dict[float, str]:
    """Return number -> the size or argument of a call that it is, for numbers that are hardly so by chance."""
    listed = [(size, f"{n}.shape[{i}]") for n, v in call.given.items() for i, size in _sizes(v) if size >= LARGE]
    plain = [
        (v["plain"], n) for n, v in call.given.items() if type(v.get("plain")) is float and v["plain"] not in COMMON
    ]
    return dict(reversed([*listed, *plain]))
