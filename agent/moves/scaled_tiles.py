"""Tile sizes that a launcher computes, or is given: twice, four times or half of what it is.

`kernel[grid](..., BLOCK=min(padded, 1024))` says no number that could be replaced, so the expression is multiplied
where it is passed, or where the name that is passed and the grid share is bound. It keeps its dependence on sizes. Only
sizes that the grid or a loop of the kernel follows are scaled (`tile_use.py`). Numbers that stand in the file are for
`launch_config.py`. It proposes; whether a size is right and fast is for the judge.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from pgo_agent.agent.moves.analysis import tile_use
from pgo_agent.agent.moves.analysis.launched import KernelLaunch, constexprs, launched, parameters
from pgo_agent.agent.moves.analysis.offsets import Offsets, Span, replaced
from pgo_agent.agent.moves.analysis.scopes import Function, Scopes
from pgo_agent.agent.moves.launch_levers import LARGER_TILE, SMALLER_TILE
from pgo_agent.agent.profile.findings import Defect
from pgo_agent.sandbox import parsing

Factor = tuple[int, int]  # times, then by
Scaling = tuple[Factor, str, str, tuple[Defect, ...]]  # factor, its name, symptom, what it cures
_LARGER: Scaling = ((2, 1), "twice", "more work for each byte loaded", LARGER_TILE)
_SMALLER: Scaling = ((1, 2), "half", "more blocks, fewer registers", SMALLER_TILE)
_LARGEST: Scaling = ((4, 1), "four times", "a thread has more bytes in flight", LARGER_TILE)
Step = tuple[str, str, str, tuple[Defect, ...]]  # name, symptom, the file, what it cures


@dataclass(frozen=True)
class ScaledTile:
    """A tile size of a kernel that its launches compute."""

    kernel: str
    parameter: str
    places: tuple[tuple[Span, str, Factor], ...]  # where it stands, without a factor, and the factor that it has there

    def scaled(self, source: str, by: Factor) -> str:
        """Return the file with the size multiplied."""
        return _all(source, [self], by)


def steps(source: str, tiles_of_kernel: Sequence[ScaledTile], dots: bool, spills: bool = False) -> Iterator[Step]:
    """Yield the sizes to try in a kernel with or without dots: of one tile after the other, and half of all at once.

    A tile whose registers spill is not made larger.
    """
    if dots and len(tiles_of_kernel) > 1:
        by, word, why, cures = _SMALLER
        yield f"{word} {', '.join(t.parameter for t in tiles_of_kernel)}", why, _all(source, tiles_of_kernel, by), cures
    order = (_SMALLER, _LARGER) if dots else (_LARGEST, _LARGER, _SMALLER)
    for by, word, why, cures in (_SMALLER,) if spills else order:
        for tile in tiles_of_kernel:
            yield f"{word} {tile.parameter}", why, tile.scaled(source, by), cures


def _all(source: str, scaled: Sequence[ScaledTile], by: Factor) -> str:
    return replaced(source, {span: _written(text, now, by) for t in scaled for span, text, now in t.places})


@lru_cache(64)
def tiles(source: str) -> tuple[ScaledTile, ...]:
    """Return the computed tile sizes of a file's kernels that may be scaled."""
    tree = parsing.module(source)
    offsets, scopes = Offsets(source), Scopes(tree)
    by_kernel = dict[int, list[KernelLaunch]]()
    for launch in launched(tree, scopes).launches:
        by_kernel.setdefault(id(launch.kernel), []).append(launch)
    return tuple(t for launches in by_kernel.values() for t in _of_kernel(launches, offsets, scopes))


def _of_kernel(launches: Sequence[KernelLaunch], offsets: Offsets, scopes: Scopes) -> Iterator[ScaledTile]:
    kernel = launches[0].kernel
    given = [_given(x) for x in launches]
    for name in [n for n in parameters(kernel) if n in constexprs(kernel) and tile_use.is_tile(kernel, n)]:
        passed = [(x, g[name]) for x, g in zip(launches, given, strict=True) if name in g]
        if len(passed) != len(launches) or any(scopes.literal(e) is not None for _, e in passed):
            continue
        places = [_place(x, name, e, scopes) for x, e in passed]
        if all(p is not None for p in places):
            unique = {offsets.of(p): _factored(p) for p in places if p is not None}
            listed = tuple((span, _text(offsets, core), now) for span, (core, now) in unique.items())
            yield ScaledTile(kernel.name, name, listed)


def _given(launch: KernelLaunch) -> Mapping[str, ast.expr]:
    """What a launch passes by name or position, as far as its text tells."""
    arguments = dict[str, ast.expr]()
    for name, value in zip(parameters(launch.kernel), launch.positional, strict=False):
        if isinstance(value, ast.Starred):
            break
        arguments[name] = value
    return arguments | {k.arg: k.value for k in launch.keywords if k.arg is not None}


def _place(launch: KernelLaunch, name: str, given: ast.expr, scopes: Scopes) -> ast.expr | None:
    """The expression to multiply; None where another size would leave something out, or is no choice of the launcher.

    A name that a function is given is multiplied where the launch passes it; one that is assigned, where that is.
    """
    walked = tile_use.walked(launch.kernel, name)
    if _input(given, scopes):
        return None
    if isinstance(given, ast.Name) and not _parameter(given, scopes):
        bound = scopes.value(given)
        fits = walked or tile_use.divides(launch, name, given, scopes)
        return bound if bound is not None and fits and _computed(bound) else None
    if not (isinstance(given, ast.Name) or _computed(given)) or tile_use.mentions(launch, given, scopes):
        return None
    return given if walked or tile_use.divides(launch, name, None, scopes) else None


def _parameter(name: ast.Name, scopes: Scopes) -> bool:
    bindings = scopes.bindings(name.id, name)
    return bool(bindings) and all(isinstance(b, ast.arg) for b in bindings)


def _input(given: ast.expr | None, scopes: Scopes) -> bool:
    """Whether an expression is what the launcher of the target is called with, handed on: a person chose it."""
    for _ in range(10):
        if not isinstance(given, ast.Name) or not _parameter(given, scopes):
            return False
        function = scopes.scope(scopes.bindings(given.id, given)[0])
        if isinstance(function, Function) and function.name == "kernel":
            return True
        given = scopes.value(given)
    return False


def _computed(e: ast.expr) -> bool:
    """Whether an expression is a number that the launcher computes, and not a size of its data as it is."""
    return isinstance(e, ast.Call | ast.BinOp | ast.IfExp)


def _factored(e: ast.expr) -> tuple[ast.expr, Factor]:
    """An expression without a factor that an earlier step gave it, and that factor."""
    match e:
        case ast.BinOp(left=core, op=ast.Mult(), right=ast.Constant(value=int(n))):
            return core, (n, 1)
        case ast.BinOp(left=core, op=ast.FloorDiv(), right=ast.Constant(value=int(n))):
            return core, (1, n)
    return e, (1, 1)


def _text(offsets: Offsets, e: ast.expr) -> str:
    start, end = offsets.of(e)
    text = offsets.text[start:end]
    return text if isinstance(e, ast.Name | ast.Attribute | ast.Call | ast.Subscript) else f"({text})"


def _written(text: str, now: Factor, by: Factor) -> str:
    times, into = now[0] * by[0], now[1] * by[1]
    while times % 2 == 0 and into % 2 == 0:
        times, into = times // 2, into // 2
    return f"{text} * {times}" if into == 1 and times > 1 else f"{text} // {into}" if into > 1 else text
