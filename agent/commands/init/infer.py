"""Guesses from the launcher's text which arguments are tensors, their dimensions, and which tensors it writes.

A skeleton marks all of this as guessed. Relies on `shapes.py` for tensors and their dimensions, and on `outputs.py` for
what is returned. Names of dimensions are those that the launcher itself unpacks shapes into.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pgo_agent.agent.commands.init.outputs import Host, Output
from pgo_agent.agent.commands.init.scan import ScannedFile
from pgo_agent.agent.commands.init.shapes import Shapes

INDEX = re.compile(r"(?:^|_)(?:ids?|idx|index|indices|labels?|targets?|lengths?|seqlens?)$", re.I)
USUAL = {"eps": 1e-6, "epsilon": 1e-6, "scale": 1.0, "sm_scale": 1.0, "softmax_scale": 1.0, "alpha": 1.0, "offset": 0.0}


@dataclass(frozen=True)
class Argument:
    """A parameter of the launcher that `inputs` must give."""

    name: str
    dims: tuple[str, ...] | None = None  # of a tensor, by name; None: a plain value
    value: object = None  # of a plain one; None: unknown
    whole: bool = False  # a tensor of integers


@dataclass(frozen=True)
class Guesses:
    arguments: tuple[Argument, ...]
    left_out: tuple[str, ...]  # parameters whose defaults are kept
    outputs: tuple[Output, ...]
    returned: int  # values that the launcher returns; 0: one, or none
    dropped: tuple[str, ...]  # what it also returns, to which no kernel stores
    space: dict[str, list[int]]  # launch parameters that the file itself names, with their values
    unread: tuple[str, ...]  # those whose values only a run would show

    @property
    def changed(self) -> list[str]:
        """Arguments that the launch writes into."""
        return [o.name for o in self.outputs if not o.allocated]


def guess(scanned: ScannedFile) -> Guesses:
    signature = scanned.launcher.args
    names = [a.arg for a in (*signature.posonlyargs, *signature.args, *signature.kwonlyargs)]
    defaults = _defaults(signature)
    shapes = Shapes(scanned, scanned.launcher)
    arguments = tuple(_argument(n, shapes) for n in names if n not in defaults)
    tensors = [n for n in names if n not in defaults and shapes.is_tensor(n)]
    results = Host(scanned).results(scanned.launcher, tensors)
    left_out = tuple(n for n in names if n in defaults)
    return Guesses(arguments, left_out, results.outputs, results.returned, results.dropped, *_space(scanned))


def _defaults(signature: ast.arguments) -> set[str]:
    places = [a.arg for a in (*signature.posonlyargs, *signature.args)]
    named = {a.arg for a, d in zip(signature.kwonlyargs, signature.kw_defaults, strict=True) if d is not None}
    return set(places[len(places) - len(signature.defaults) :]) | named


def _argument(name: str, shapes: Shapes) -> Argument:
    if not shapes.is_tensor(name):
        return Argument(name, None, USUAL.get(name.lower()))
    return Argument(name, shapes.dims(name), whole=INDEX.search(name) is not None)


# the launch space -----------------------------------------------------------------------------------------------------


def _space(scanned: ScannedFile) -> tuple[dict[str, list[int]], tuple[str, ...]]:
    """Return the parameters that autotuner configurations set, with all values in the file, and those without any."""
    values: dict[str, set[int]] = {}
    for node in (node for block in scanned.needed for node in block.nodes):
        for call, ranges in _configs(node, {}):
            for name, value in _config(call).items():
                values.setdefault(name, set()).update(_values(value, ranges))
    return {n: sorted(v) for n, v in values.items() if v}, tuple(n for n, v in values.items() if not v)


def _configs(node: ast.AST, ranges: Mapping[str, ast.expr]) -> Iterator[tuple[ast.Call, Mapping[str, ast.expr]]]:
    """Yield calls of `triton.Config`, with variable -> iterable of the comprehensions around them."""
    if isinstance(node, ast.ListComp | ast.GeneratorExp):
        inner = {g.target.id: g.iter for g in node.generators if isinstance(g.target, ast.Name)}
        ranges = {**ranges, **inner}
    if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "Config":
        yield node, ranges
    for child in ast.iter_child_nodes(node):
        yield from _configs(child, ranges)


def _config(call: ast.Call) -> Mapping[str, ast.expr]:
    listed = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "kwargs"), None)
    pairs = zip(listed.keys, listed.values, strict=True) if isinstance(listed, ast.Dict) else ()
    named = {str(k.value): v for k, v in pairs if isinstance(k, ast.Constant)}
    return named | {
        k.arg: k.value for k in call.keywords if k.arg in ("num_warps", "num_stages", "num_ctas", "maxnreg")
    }


def _values(value: ast.expr, ranges: Mapping[str, ast.expr]) -> set[int]:
    """Return the integers in an expression, or in what its comprehension variable runs through."""
    if isinstance(value, ast.Name) and value.id in ranges:
        value = ranges[value.id]
    listed = value.elts if isinstance(value, ast.List | ast.Tuple | ast.Set) else [value]
    return {e.value for e in listed if isinstance(e, ast.Constant) and type(e.value) is int}
