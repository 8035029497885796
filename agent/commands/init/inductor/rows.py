"""Finds the size of a group's kernels that may be another one: how many rows they work on.

Inductor writes the sizes of a call into its kernels as numbers. The outermost one stands in one line, `xnumel = 4096`,
and in no address: as long as strides stay, the kernel is right for fewer rows, too. So small and held-out cases differ
in it. A kernel whose text says more of that size, in an address, a comparison or a value, is left as it is: what this
module does not understand is no free size. Relies on `sizes.py` for the tensors, reads kernels by `ast`.
"""

import ast
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pgo_agent.agent.commands.init.inductor import matmul
from pgo_agent.agent.commands.init.inductor.calls import Arg, Launch
from pgo_agent.agent.commands.init.inductor.fragment import Layout
from pgo_agent.agent.commands.init.inductor.groups import Group
from pgo_agent.agent.commands.init.inductor.turned import Turned
from pgo_agent.sandbox import parsing

_PREFIXES = ("z", "y", "x", "r0_")  # of the index that is outermost first
_LOADING = frozenset({"load", "store", "atomic_add", "atomic_max", "atomic_min"})


@dataclass(frozen=True)
class Axis:
    """Where a tensor has the free size: `times` * rows elements along an axis."""

    axis: int
    times: int


@dataclass(frozen=True)
class Rows:
    """The free size of a group."""

    count: int  # as Inductor saw it
    launches: tuple[Turned, ...]
    tensors: Mapping[str, Axis]  # name in the graph, of inputs and results


def free(group: Group) -> Rows | None:
    """Return the size of a group that may be another one; None if there is none."""
    if group.symbols:
        return None
    options = [list(_options(launch)) for launch in group.launches]
    if len(options) > 4 or not all(options):
        return None
    for chosen in itertools.product(*options):
        if (rows := _together(group.launches, chosen)) is not None:
            return rows
    return None


def coarser(rows: Rows, shaped: Iterable[Layout | None]) -> Rows:
    """Return rows that are so many that sizes in the graph follow them, too: of (512, 8) as (2, 256, 8) there are 2."""
    count = rows.count
    for layout in shaped:
        sizes = [int(s) for s in layout.size if s.isdigit() and s != "1"] if layout is not None else []
        if math.prod(sizes) % rows.count == 0 and sizes and sizes[0] % count:
            count = math.gcd(count, sizes[0])
    if count < 2 or count == rows.count:
        return rows
    more = rows.count // count
    return Rows(count, rows.launches, {n: Axis(a.axis, a.times * more) for n, a in rows.tensors.items()})


def _together(launches: Sequence[Launch], chosen: Sequence[Turned]) -> Rows | None:
    """Return what launches have in common, if each value has the free size at one place."""
    most = [max(below for _, _, below in t.axes.values()) for t in chosen]  # of the rows of a launch, in one step
    counts = {t.extent / n for t, n in zip(chosen, most, strict=True)}
    if len(counts) != 1 or not (count := counts.pop()).is_integer() or count < 2:
        return None
    found, fixed = dict[str, Axis](), set[str]()
    for launch, turned, below in zip(launches, chosen, most, strict=True):
        for arg in (a for a in launch.args if a.tensor):
            for name in {arg.held, arg.result} - {""}:
                place = turned.axes.get(arg.parameter)
                if place is None:
                    fixed.add(name)
                    continue
                if below % place[2]:
                    return None
                axis = Axis(place[0], below // place[2])
                if found.setdefault(name, axis) != axis:
                    return None
    return Rows(int(count), tuple(chosen), found) if found and not fixed & set(found) else None


def _options(launch: Launch) -> Iterator[Turned]:
    """Yield the indices of a launch whose length may be another one, the outermost first."""
    if (function := launch.kernel.function) is None:
        return
    if launch.grid:
        yield from matmul.rows_of(launch, function)
        return
    grid = [p for p in _PREFIXES[:3] if any(a.parameter == f"{p}numel" for a in launch.args)]
    for prefix in [*grid[:1], "r0_"]:
        turned = _turned(launch, function, prefix)
        if turned is not None and turned.axes:
            yield turned


def _turned(launch: Launch, function: ast.FunctionDef, prefix: str) -> Turned | None:
    index, parameter = f"{prefix}index", f"{prefix}numel"
    numel = _numel(function, parameter)
    names = _indices(function, index)
    if numel is None or not names or not any(a.parameter == parameter for a in launch.args):
        return None
    step = math.lcm(*(c * (m or 1) for c, m in names.values()))
    moves = {n: _per_row(c, m, step) for n, (c, m) in names.items()}
    if numel % step or None in moves.values():
        return None
    by_row = {n: k for n, k in moves.items() if k} | {index: step}
    steps = _addresses(function, by_row)
    rows = {*by_row, "rindex"} if prefix == "r0_" else set(by_row)
    if steps is None or _used_elsewhere(function, rows, set(names), prefix, numel):
        return None
    axes = dict[str, tuple[int, int, int]]()
    for arg in (a for a in launch.args if a.tensor and steps.get(a.parameter)):
        place = _axis(arg, steps[arg.parameter], numel // step)
        if place is None:
            return None
        axes[arg.parameter] = place
    return Turned(prefix, parameter, numel, not _masked(function, prefix), axes, numel // step)


def _numel(function: ast.FunctionDef, name: str) -> int | None:
    """Return the length of an index that stands in a kernel's text."""
    for node in function.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=n)], value=ast.Constant(value=int(size))) if n == name:
                return size
    return None


def _indices(function: ast.FunctionDef, index: str) -> dict[str, tuple[int, int | None]]:
    """Return the names of parts of an index: `(index // c) % m` as (c, m)."""
    found = dict[str, tuple[int, int | None]]()
    for node in (n for n in ast.walk(function) if isinstance(n, ast.Assign)):
        match node.targets, node.value:
            case [ast.Name(id=name)], value if re.fullmatch(r"[xyzr]\d*_?\d+", name):
                if (part := _part(value, index)) is not None:
                    found[name] = part
    return found


def _part(value: ast.expr, index: str) -> tuple[int, int | None] | None:
    match value:
        case ast.Name(id=n) if n == index:
            return 1, None
        case ast.BinOp(left=ast.Name(id=n), op=ast.FloorDiv(), right=ast.Constant(value=int(c))) if n == index:
            return c, None
        case ast.BinOp(left=left, op=ast.Mod(), right=ast.Constant(value=int(m))):
            inner = _part(left, index)
            return (inner[0], m) if inner is not None and inner[1] is None else None
    return None


def _per_row(c: int, m: int | None, step: int) -> int | None:
    """Return how much a part of an index grows from one row to the next; None where that is not always the same."""
    if m is None:
        return step // c if step % c == 0 else None
    return 0 if step % (c * m) == 0 else None


def _addresses(function: ast.FunctionDef, by_row: Mapping[str, int]) -> dict[str, int] | None:
    """Return parameter -> by how many elements its addresses grow from one row to the next; None if not known."""
    found = dict[str, int]()
    for call in (n for n in ast.walk(function) if isinstance(n, ast.Call) and _loads(n)):
        pointer, offset = _pointer(call.args[0])
        moved = _growth(offset, by_row) if offset is not None else 0
        if pointer == "" or moved is None or moved < 0 or found.setdefault(pointer, moved) != moved:
            return None
    return found


def _loads(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in _LOADING and ast.unparse(call.func.value) == "tl"


def _pointer(node: ast.expr) -> tuple[str, ast.expr | None]:
    match node:
        case ast.Name(id=name):
            return name, None
        case ast.BinOp(left=ast.Name(id=name), op=ast.Add(), right=offset):
            return name, offset
    return "", None


def _growth(node: ast.expr, by_row: Mapping[str, int]) -> int | None:
    match node:
        case ast.Constant():
            return 0
        case ast.Name(id=name):
            return by_row.get(name, 0)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
            one, other = _growth(left, by_row), _growth(right, by_row)
            sign = 1 if isinstance(op, ast.Add) else -1
            return None if one is None or other is None else one + sign * other
        case ast.BinOp(left=ast.Constant(value=int(n)), op=ast.Mult(), right=right):
            grown = _growth(right, by_row)
            return None if grown is None else n * grown
        case ast.BinOp(left=left, op=ast.FloorDiv() | ast.Mod() as op, right=ast.Constant(value=int(n))) if n > 0:
            grown = _growth(left, by_row)
            if grown is None or grown % n:
                return None
            return grown // n if isinstance(op, ast.FloorDiv) else 0
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            grown = _growth(operand, by_row)
            return None if grown is None else -grown
        case ast.Call(func=ast.Attribute(attr="broadcast_to"), args=[inner, *_]):
            return _growth(inner, by_row)
    known = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} & set(by_row)
    return None if known else 0


def _used_elsewhere(function: ast.FunctionDef, names: set[str], parts: set[str], prefix: str, numel: int) -> bool:
    """Whether a kernel's text uses a row's number, or how many there are, for anything but addresses and its mask."""
    allowed: list[ast.AST] = [c.args[0] for c in ast.walk(function) if isinstance(c, ast.Call) and _loads(c)]
    for node in (n for n in ast.walk(function) if isinstance(n, ast.Assign)):
        text = ast.unparse(node.targets[0])
        if text in parts or re.fullmatch(rf"{prefix}(index|mask|offset|numel)|r(numel|index|offset|base)", text):
            allowed.append(node)
    loops = [n.iter for n in ast.walk(function) if isinstance(n, ast.For)]
    skipped = {id(inner) for node in (*allowed, *loops) for inner in ast.walk(node)}
    rest = [n for node in function.body for n in ast.walk(node) if id(n) not in skipped]
    if prefix == "r0_" and any(isinstance(n, ast.Constant) and n.value in (numel, float(numel)) for n in rest):
        return True  # a mean divides by it
    return any(isinstance(n, ast.Name) and n.id in {*names, f"{prefix}numel", "rnumel"} for n in rest)


def _axis(arg: Arg, step: int, extent: int) -> tuple[int, int, int] | None:
    """Return the axis of a tensor along which its rows lie, its size, and how many rows one step along it is."""
    assert arg.layout is not None
    if not all(n.isdigit() for n in (*arg.layout.size, *arg.layout.stride)):
        return None
    axes = [(int(t), int(s), i) for i, (s, t) in enumerate(zip(arg.layout.size, arg.layout.stride, strict=True))]
    for stride, size, i in sorted((a for a in axes if a[1] > 1), reverse=True):
        if stride % step == 0 and size * (stride // step) == extent:
            return i, size, stride // step
    return None


def _masked(function: ast.FunctionDef, prefix: str) -> bool:
    """Whether a mask keeps what is beyond the last row from being touched."""
    for node in (n for n in ast.walk(function) if isinstance(n, ast.Assign)):
        if ast.unparse(node.targets[0]) == f"{prefix}mask":
            return f"{prefix}numel" in ast.unparse(node.value)
    return False


def opened(text: str, name: str, turned: Turned) -> str:
    """Return a kernel's text that gets its length from the launch, as a constant: where it is the same, so is the code
    that Triton makes of it."""
    tree = parsing.module(text)
    function = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name)
    told = list[ast.stmt]()
    for node in function.body:
        if not (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == turned.parameter):
            told.append(node)
        elif turned.constant != turned.parameter:
            told += parsing.module(f"{turned.parameter} = {turned.constant}").body
    function.body = told
    function.args.args.append(ast.arg(turned.constant, parsing.expression("tl.constexpr")))
    return ast.unparse(tree) + "\n"
