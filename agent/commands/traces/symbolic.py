"""What numbers of launches are: sizes of tensors, quotients of sizes and block sizes, or just numbers.

An expression is taken for a number if it has that value in every launch. Where launches are few, one may fit by
chance; whoever takes it marks it as guessed, and the sizes of small cases are tried.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, product

from pgo_agent.agent.commands.traces.events import TracedTensor

LARGE = 16  # a number from here on is taken for the size that it equals
Vector = tuple[int, ...]  # one number for each launch


@dataclass(frozen=True)
class Term:
    """An expression with its value in each launch."""

    text: str
    values: Vector


def sizes(tensors: Mapping[str, Sequence[TracedTensor]]) -> list[Term]:
    """Return the sizes of tensors, shapes first. `tensors`: by name, one for each launch."""
    ranked = {n: ts for n, ts in tensors.items() if len({len(t.shape) for t in ts}) == 1}
    shapes = [Term(f"{n}.shape[{i}]", tuple(t.shape[i] for t in ts)) for n, ts in ranked.items() for i in _axes(ts)]
    numels = [Term(f"{n}.numel()", tuple(math.prod(t.shape) for t in ts)) for n, ts in tensors.items()]
    return [*shapes, *numels]


def strides(tensors: Mapping[str, Sequence[TracedTensor]]) -> list[Term]:
    ranked = {n: ts for n, ts in tensors.items() if len({len(t.shape) for t in ts}) == 1}
    return [Term(f"{n}.stride({i})", tuple(t.stride[i] for t in ts)) for n, ts in ranked.items() for i in _axes(ts)]


def _axes(tensors: Sequence[TracedTensor]) -> range:
    return range(len(tensors[0].shape))


def find(values: Vector, terms: Iterable[Term], least: int = LARGE) -> str:
    """Return the first term with these values; empty for none, and for small numbers that never change."""
    if len(set(values)) == 1 and values[0] < least:
        return ""
    return next((t.text for t in terms if t.values == values), "")


def power(values: Vector, terms: Iterable[Term]) -> str:
    """Return these values as the next power of two of a size; empty for none."""
    return next((f"triton.next_power_of_2({t.text})" for t in terms if tuple(map(_next, t.values)) == values), "")


def _next(n: int) -> int:
    return 1 << (n - 1).bit_length() if n > 0 else 1


def grid(values: Vector, sizes: Sequence[Term], blocks: Sequence[Term], named: Sequence[Term] = ()) -> str:
    """Return one number of a grid as an expression; empty for none that fits every launch.

    `blocks`: block sizes, by the names that they have in the launcher. `named`: those that are named after this axis: a
    quotient with one of them is no chance.
    """
    if set(values) == {1}:
        return "1"
    first = (t for t in _quotients(sizes, named) if ".numel" not in t.text)
    return next((t.text for t in chain(first, _grids(sizes, blocks)) if t.values == values), "")


def _quotients(sizes: Sequence[Term], blocks: Sequence[Term]) -> list[Term]:
    return [
        Term(f"triton.cdiv({s.text}, {b.text})", tuple(map(_cdiv, s.values, b.values)))
        for s, b in product(sizes, blocks)
        if all(n > 0 for n in b.values) and any(n > 1 for n in b.values)
    ]


def _grids(sizes: Sequence[Term], blocks: Sequence[Term]) -> Iterator[Term]:
    distinct = list({t.values: t for t in reversed(sizes)}.values())[::-1]
    quotients = _quotients(distinct, blocks)
    yield from distinct
    yield from quotients
    axes = [t for t in distinct if ".numel" not in t.text and set(t.values) != {1}]
    tiles = [q for q in quotients if ".numel" not in q.text]
    yield from (_times(a, b) for a, b in combinations(axes, 2))
    yield from (_times(a, b) for a, b in combinations(tiles, 2))
    yield from (_times(a, q) for a, q in product(axes, tiles))
    yield from (_times(_times(a, b), c) for a, b, c in combinations(axes, 3))
    yield from (_times(_times(a, b), q) for (a, b), q in product(combinations(axes, 2), tiles))


def _times(one: Term, other: Term) -> Term:
    return Term(f"{one.text} * {other.text}", tuple(a * b for a, b in zip(one.values, other.values, strict=True)))


def _cdiv(a: int, b: int) -> int:
    return -(-a // b)
