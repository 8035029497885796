"""What the launcher's text says of its arguments and results: which are tensors, their dimensions, what is written.

Guesses, all of them: a skeleton marks them so. Relies on the text of the launcher alone, and on `written.py` for what
the kernels store through. Names of dimensions are those that the launcher itself unpacks shapes into.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import libcst as cst
from pgo_agent.agent.init.found import Found
from pgo_agent.agent.init.shapes import Shapes
from pgo_agent.agent.rewriting import syntax
from pgo_agent.agent.rewriting.written import written
from pgo_agent.sandbox import parsing

MADE = re.compile(r"(?:torch\.|\w+\.new_)(?:empty|zeros|ones|full|empty_like|zeros_like|empty_strided)\b")
INDEX = re.compile(r"(?:^|_)(?:ids?|idx|index|indices|labels?|targets?|lengths?|seqlens?)$", re.I)
USUAL = {"eps": 1e-6, "epsilon": 1e-6, "scale": 1.0, "sm_scale": 1.0, "softmax_scale": 1.0, "alpha": 1.0, "offset": 0.0}
SIZES = frozenset({"shape", "size", "stride", "numel", "dtype", "device", "dim", "ndim", "item", "element_size"})


@dataclass(frozen=True)
class Argument:
    """A parameter of the launcher that `inputs` must give."""

    name: str
    dims: tuple[str, ...] | None = None  # of a tensor, by name; None: a plain value
    value: object = None  # of a plain one; None: nobody can tell
    whole: bool = False  # a tensor of integers


@dataclass(frozen=True)
class Output:
    """A tensor that the launch writes."""

    name: str  # as the launcher calls it
    place: int | None  # in what the launcher returns; -1: it is all that is returned; None: it is not returned
    own: bool  # the launcher allocates it; else it is one of its arguments
    like: str = ""  # the argument whose size it has; empty where nobody knows
    dims: tuple[str, ...] = ()  # that its allocation names, where it does

    @property
    def reachable(self) -> bool:
        """Whether who calls the launcher gets at it."""
        return self.place is not None or not self.own


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
    shapes = Shapes(found)
    arguments = tuple(_argument(n, shapes) for n in names if n not in defaults)
    outputs, returned, dropped = _outputs(found, [n for n in names if shapes.is_tensor(n)])
    left_out = tuple(n for n in names if n in defaults)
    return Guesses(arguments, left_out, outputs, returned, dropped, *_space(found))


def _defaults(own: ast.arguments) -> set[str]:
    places = [a.arg for a in (*own.posonlyargs, *own.args)]
    named = {a.arg for a, d in zip(own.kwonlyargs, own.kw_defaults, strict=True) if d is not None}
    return set(places[len(places) - len(own.defaults) :]) | named


def _argument(name: str, shapes: Shapes) -> Argument:
    if not shapes.is_tensor(name):
        return Argument(name, None, USUAL.get(name.lower()))
    return Argument(name, shapes.dims(name), whole=INDEX.search(name) is not None)


# what is written ------------------------------------------------------------------------------------------------------


def _outputs(found: Found, parameters: list[str]) -> tuple[tuple[Output, ...], int, tuple[str, ...]]:
    """Tensors that the kernels store to or that are made of those, how many values are returned, and which others."""
    returned = _returned(found.launcher)
    roots = [_root(e) for e in returned]
    made = {name: text for name, text in _assigned(found.launcher) if MADE.match(text)}
    stored = _stored(found)
    outputs = []
    for name in stored:
        place = roots.index(name) if name in roots else None
        if name in made or name in parameters:
            own = name in made
            like = _like(made[name], parameters) if own else name
            outputs.append(Output(name, place, own, like, _allocated(made[name]) if own and not like else ()))
    told = {o.name for o in outputs}
    derived = _derived(found.launcher, set(stored)) - set(parameters) - told
    outputs += [Output(n, i, True) for i, n in enumerate(roots) if n in derived and n not in roots[:i]]
    dropped = tuple(n for n in dict.fromkeys(roots) if n and n not in told | derived | set(parameters))
    placed = [replace(o, place=-1) if o.place == 0 and len(roots) == 1 else o for o in outputs]
    return tuple(placed), len(returned) if len(returned) > 1 else 0, dropped


def _derived(function: ast.FunctionDef, stored: set[str]) -> set[str]:
    """Names that are bound to something made of what the kernels store to, such as a sum of it."""
    bound = [(name, _made_of(parsing.expression(text))) for name, text in _assigned(function)]
    found = set(stored)
    while grown := {name for name, names in bound if names & found} - found:
        found |= grown
    return found - stored


def _made_of(node: ast.AST) -> set[str]:
    """The names in an expression, but for those of which it takes a size or a type only."""
    if isinstance(node, ast.Attribute) and node.attr in SIZES:
        return set()
    own = {node.id} if isinstance(node, ast.Name) else set[str]()
    return own.union(*(_made_of(child) for child in ast.iter_child_nodes(node)))


def _stored(found: Found) -> list[str]:
    """What is passed to parameters that a kernel stores through, by its name in the launcher."""
    module = cst.parse_module(found.text)
    known = syntax.functions(module)
    through = {name: written(module, known[name]) for name in found.kernels if name in known}
    names = [
        _root(value)
        for launch in found.launches
        for parameter, value in launch.passed.items()
        if parameter in through.get(launch.kernel, ())
    ]
    return [n for n in dict.fromkeys(names) if n]


def _returned(function: ast.FunctionDef) -> list[ast.expr]:
    """The values of the last `return` of the function itself."""
    found = [n.value for n in ast.walk(function) if isinstance(n, ast.Return) and n.value is not None]
    last = max(found, key=lambda v: v.lineno, default=None)
    if last is None:
        return []
    return list(last.elts) if isinstance(last, ast.Tuple) else [last]


def _root(node: ast.expr) -> str:
    """The name that `x`, `x.view(...)` or `x.data` begins with."""
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _assigned(function: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, ast.unparse(node.value)


def _like(text: str, parameters: list[str]) -> str:
    """The argument in `torch.empty_like(x)`."""
    found = re.match(r"torch\.(?:empty|zeros)_like\((\w+)", text)
    return found[1] if found and found[1] in parameters else ""


def _allocated(text: str) -> tuple[str, ...]:
    """The dimensions in `torch.empty((M, N), ...)` or `torch.empty(n, ...)`, where they are names."""
    call = parsing.expression(text)
    given = call.args[0] if isinstance(call, ast.Call) and call.args else None
    listed = given.elts if isinstance(given, ast.Tuple | ast.List) else [given] if given else []
    names = tuple(e.id for e in listed if isinstance(e, ast.Name))
    return names if len(names) == len(listed) else ()


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
