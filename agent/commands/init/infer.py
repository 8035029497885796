"""What the launcher's text says of its arguments and results: which are tensors, their dimensions, what is written.

Guesses, all of them: a skeleton marks them so. Relies on `shapes.py` for tensors and their dimensions, and on
`outputs.py` for what comes back. Names of dimensions are those that the launcher itself unpacks shapes into.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pgo_agent.agent.commands.init.outputs import Host, Output
from pgo_agent.agent.commands.init.scan import Found
from pgo_agent.agent.commands.init.shapes import Shapes

INDEX = re.compile(r"(?:^|_)(?:ids?|idx|index|indices|labels?|targets?|lengths?|seqlens?)$", re.I)
USUAL = {"eps": 1e-6, "epsilon": 1e-6, "scale": 1.0, "sm_scale": 1.0, "softmax_scale": 1.0, "alpha": 1.0, "offset": 0.0}


@dataclass(frozen=True)
class Argument:
    """A parameter of the launcher that `inputs` must give."""

    name: str
    dims: tuple[str, ...] | None = None  # of a tensor, by name; None: a plain value
    value: object = None  # of a plain one; None: nobody can tell
    whole: bool = False  # a tensor of integers


@dataclass(frozen=True)
class Guesses:
    arguments: tuple[Argument, ...]
    left_out: tuple[str, ...]  # parameters whose defaults are kept
    outputs: tuple[Output, ...]
    returned: int  # values that the launcher returns; 0: one, or none
    dropped: tuple[str, ...]  # what it returns beside, that no kernel stores to
    space: dict[str, list[int]]  # launch parameters that the file itself names, with their values
    unread: tuple[str, ...]  # those whose values only a run would tell


def guess(found: Found) -> Guesses:
    own = found.launcher.args
    names = [a.arg for a in (*own.posonlyargs, *own.args, *own.kwonlyargs)]
    defaults = _defaults(own)
    shapes = Shapes(found, found.launcher)
    arguments = tuple(_argument(n, shapes) for n in names if n not in defaults)
    given = [n for n in names if n not in defaults and shapes.is_tensor(n)]
    results = Host(found).results(found.launcher, given)
    left_out = tuple(n for n in names if n in defaults)
    return Guesses(arguments, left_out, results.outputs, results.returned, results.dropped, *_space(found))


def _defaults(own: ast.arguments) -> set[str]:
    places = [a.arg for a in (*own.posonlyargs, *own.args)]
    named = {a.arg for a, d in zip(own.kwonlyargs, own.kw_defaults, strict=True) if d is not None}
    return set(places[len(places) - len(own.defaults) :]) | named


def _argument(name: str, shapes: Shapes) -> Argument:
    if not shapes.is_tensor(name):
        return Argument(name, None, USUAL.get(name.lower()))
    return Argument(name, shapes.dims(name), whole=INDEX.search(name) is not None)


# the launch space -----------------------------------------------------------------------------------------------------


def _space(found: Found) -> tuple[dict[str, list[int]], tuple[str, ...]]:
    """What configurations of autotuners set: parameters with all values that the file names, and those without any."""
    values: dict[str, set[int]] = {}
    for node in (node for block in found.kept for node in block.nodes):
        for call, ranges in _configs(node, {}):
            for name, value in _config(call).items():
                values.setdefault(name, set()).update(_values(value, ranges))
    return {n: sorted(v) for n, v in values.items() if v}, tuple(n for n, v in values.items() if not v)


def _configs(node: ast.AST, ranges: Mapping[str, ast.expr]) -> Iterator[tuple[ast.Call, Mapping[str, ast.expr]]]:
    """Calls of `triton.Config`, with what the comprehensions about them run through."""
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
    """The integers that an expression says, by itself or as what a comprehension runs through."""
    if isinstance(value, ast.Name) and value.id in ranges:
        value = ranges[value.id]
    listed = value.elts if isinstance(value, ast.List | ast.Tuple | ast.Set) else [value]
    return {e.value for e in listed if isinstance(e, ast.Constant) and type(e.value) is int}
