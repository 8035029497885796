"""Names the sizes of captured calls, and makes cases of them: each call a case, smaller ones and held-out ones guessed.

Two axes share a name where their sizes agree in every call, unless the launcher's own text tells them apart. A number
among the arguments that is such a size in every call, or one of a result, is that size, and follows it.
"""

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from pgo_agent.agent.commands.init.seen import Call, Tensor, tensor, tensors

LETTERS = ("M", "N", "K", "L", "P", "Q", "R", "S", "T", "U", "V", "W")
LARGE = 16  # a number from here on is taken for the size that it equals
FEW = 16  # a size up to twice this is not halved
BLOCK = 256  # what halves of a size are no smaller than, where it must be a multiple of block sizes
HEAD = 256  # the last size of many dimensions up to this is kept: kernels take few head dimensions
NUMBER = -1  # in place of an axis: the argument is a number itself
LESS = 3  # by how much a guessed size differs from an even one, at first
MOST = 8  # calls that become cases
SMALL_LAST, SMALL_OTHERS = 64, (2, 2, 16, 64)  # sizes of small cases at most: last axis, and those before it
Axis = tuple[str, int]  # argument ("a.0" for one in a list) and axis


class Guess(StrEnum):
    """How sizes are guessed that no call had."""

    RAGGED = "ragged"  # no powers of two
    ROWS = "rows"  # no powers of two where calls differ, or of first axes alone: others may be part of the code
    HALVES = "halves"
    MULTIPLES = "multiples"  # of block sizes, as those that were seen
    SAME = "same"  # not at all: the program takes these sizes alone


@dataclass(frozen=True)
class Sizes:
    """Sizes by name, for each call, and the name or number of each axis."""

    names: Mapping[Axis, str]
    by_call: tuple[dict[str, int], ...]
    guessed: tuple[dict[str, int], ...] = ()  # of one small and one held-out case

    def shape(self, argument: str, t: Tensor) -> list[str]:
        """Return the shape of an argument as expressions of a case."""
        return [f'case["{n}"]' if (n := self.names.get((argument, i))) else str(s) for i, s in enumerate(t.shape)]

    def same(self, one: str, other: str) -> bool:
        """Whether two names are of one size in every call, and in every case that is guessed."""
        return all(sizes[one] == sizes[other] for sizes in (*self.by_call, *self.guessed))


def leaves(name: str, value: object) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors in an argument with their names."""
    t = tensor(value)
    if t is not None:
        yield name, t
    elif isinstance(value, dict):
        for i, v in enumerate(value.get("list", ())):
            yield from leaves(f"{name}.{i}", v)


def numbers(name: str, value: object) -> Iterator[tuple[str, int]]:
    """Yield the whole numbers in an argument with their names."""
    if not isinstance(value, dict):
        return
    if type(value.get("plain")) is int:
        yield name, value["plain"]
    for i, v in enumerate(value.get("list", ())):
        yield from numbers(f"{name}.{i}", v)


def sizes(calls: Sequence[Call], function: ast.FunctionDef | None, follow: bool = True) -> Sizes:
    """Return the sizes of calls that were given tensors of the same ranks. `follow`: numbers among the arguments that
    are sizes are those, and not the numbers that they were."""
    listed = [[leaf for n, v in c.given.items() for leaf in leaves(n, v)] for c in calls]
    vectors: dict[Axis, tuple[int, ...]] = {}
    for parts in zip(*listed, strict=True):
        for axis in range(len(parts[0][1].shape)):
            vectors[parts[0][0], axis] = tuple(t.shape[axis] for _, t in parts)
    texts = _texts(function) if function else {}
    names, by_name = dict[Axis, str](), dict[str, tuple[int, ...]]()
    for place, vector in vectors.items():
        own = texts.get(place)
        if own and by_name.setdefault(own, vector) == vector:
            names[place] = own
    free = iter(n for n in (*LETTERS, *(f"D{i}" for i in range(64))) if n not in by_name)
    for place, vector in vectors.items():
        if place in names or set(vector) == {1}:
            continue
        same = next((n for n, v in by_name.items() if v == vector), None)
        names[place] = same or next(free)
        by_name[names[place]] = vector
    if follow:
        names |= _numbers(calls, by_name, free)
    known = Sizes(names, tuple({n: v[i] for n, v in by_name.items()} for i in range(len(calls))))
    return replace(known, guessed=(smaller(known, calls, LESS), held_out(known, calls, LESS)))


def _numbers(calls: Sequence[Call], by_name: dict[str, tuple[int, ...]], free: Iterator[str]) -> dict[Axis, str]:
    """Return the names of numbers among the arguments that are sizes; add those to `by_name` that only results have."""
    listed = [dict(pair for n, v in c.given.items() for pair in numbers(n, v)) for c in calls]
    results = [[{t.shape[i] for t in tensors(c.result) if len(t.shape) > i} for i in range(LARGE)] for c in calls]
    found = dict[Axis, str]()
    for place in listed[0]:
        vector = tuple(of.get(place, 0) for of in listed)
        if min(vector) < LARGE:
            continue
        of_result = any(all(v in axes[i] for v, axes in zip(vector, results, strict=True)) for i in range(LARGE))
        name = next((n for n, v in by_name.items() if v == vector), "") or (next(free) if of_result else "")
        if name:
            by_name[name], found[place, NUMBER] = vector, name
    return found


def _texts(function: ast.FunctionDef) -> dict[Axis, str]:
    """Return the names that a launcher unpacks shapes into: `M, K = a.shape`, `n = x.shape[0]`."""
    found = dict[Axis, str]()
    for node in (n for n in ast.walk(function) if isinstance(n, ast.Assign) and len(n.targets) == 1):
        target, value = node.targets[0], node.value
        text = ast.unparse(value)
        owner = text.partition(".")[0]
        if isinstance(target, ast.Tuple) and text in (f"{owner}.shape", f"{owner}.size()"):
            for i, e in enumerate(target.elts):
                if isinstance(e, ast.Name) and e.id != "_":
                    found[owner, i] = e.id
        elif (
            (
                isinstance(target, ast.Name)
                and isinstance(value, ast.Subscript)
                and ast.unparse(value.value) == f"{owner}.shape"
            )
            and isinstance(value.slice, ast.Constant)
            and isinstance(value.slice.value, int)
            and value.slice.value >= 0
        ):
            found[owner, value.slice.value] = target.id
    return found


def smaller(known: Sizes, calls: Sequence[Call], less: int, how: Guess = Guess.RAGGED, part: int = 1) -> dict[str, int]:
    """Return sizes for Triton's interpreter, each by `less` smaller or half as large, but for small ones and head
    dimensions; or those that were seen. `part`: of what they are at most."""
    if how == Guess.SAME:
        return dict(known.by_call[0])
    if how == Guess.MULTIPLES:
        return {n: _halved(s) for n, s in known.by_call[0].items()}
    if how == Guess.ROWS:
        return dict(known.by_call[0]) | _of(_rows(known, calls), smaller(known, calls, less, part=part))
    first, result, last = known.by_call[0], dict[str, int](), set[str]()
    for name, t in (leaf for n, v in calls[0].given.items() for leaf in leaves(n, v)):
        for i in range(len(t.shape)):
            axis, back = known.names.get((name, i)), len(t.shape) - 1 - i
            if axis is None:
                continue
            cap = (
                1024
                if len(t.shape) == 1 and axis not in result
                else SMALL_LAST
                if back == 0
                else SMALL_OTHERS[-min(back, 4)]
            )
            cap = cap if cap <= FEW else cap // part
            result[axis] = min(result.get(axis, first[axis]), first[axis], cap)
            last |= {axis} if back == 0 and len(t.shape) > 2 and first[axis] <= HEAD else set()
    result |= {n: min(s, SMALL_LAST // part) for n, s in first.items() if n not in result}  # of numbers alone
    if how == Guess.HALVES:
        return {n: s // 2 if s > 2 * FEW and n not in last else s for n, s in result.items()}
    if less:
        result |= _apart(first, {n: s for n, s in result.items() if n not in last})
    return {n: s - less if s > max(8, less) and n not in last else s for n, s in result.items()}


def _rows(known: Sizes, calls: Sequence[Call]) -> set[str]:
    """Return the sizes that differ between calls; where none does, those of first axes that are of no other axis."""
    varied = {n for n in known.by_call[0] if len({sizes[n] for sizes in known.by_call}) > 1}
    given = [leaf for n, v in calls[0].given.items() for leaf in leaves(n, v)]
    places = [(known.names.get((n, i)), i) for n, t in given for i in range(len(t.shape)) if len(t.shape) > 1]
    firsts = {n for n, i in places if n and i == 0} - {n for n, i in places if n and i}
    return varied or firsts


def _of(names: Collection[str], sizes: Mapping[str, int]) -> dict[str, int]:
    return {n: s for n, s in sizes.items() if n in names}


def _apart(first: Mapping[str, int], small: Mapping[str, int]) -> dict[str, int]:
    """Return small sizes that differ, and in the same order, where those that were seen do: what is mixed up shows, and
    a launcher that does nothing for equal ones does something."""
    result = dict(small)
    for size in set(small.values()):
        seen = sorted({first[n] for n, s in small.items() if s == size}, reverse=True)
        less = {s: size - FEW * i if size - FEW * i >= FEW else size for i, s in enumerate(seen)}
        result |= {n: less[first[n]] for n, s in small.items() if s == size}
    return result


def _halved(size: int) -> int:
    while size > BLOCK and size % 2 == 0:
        size //= 2
    return size


def held_out(known: Sizes, calls: Sequence[Call], less: int, how: Guess = Guess.RAGGED) -> dict[str, int]:
    """Return sizes that no call had: `less` is missing to three quarters, or half; small and head dimensions stay.
    SAME: those that were seen, for other values are held out."""
    if how == Guess.SAME:
        return dict(known.by_call[0])
    if how == Guess.MULTIPLES:
        return {n: s - s // 4 if s >= 2 * BLOCK else s for n, s in known.by_call[0].items()}
    if how == Guess.ROWS:
        return dict(known.by_call[0]) | _of(_rows(known, calls), held_out(known, calls, less))
    last = {
        known.names.get((name, len(t.shape) - 1))
        for n, v in calls[0].given.items()
        for name, t in leaves(n, v)
        if len(t.shape) > 2 and t.shape[-1] <= HEAD
    }
    if how == Guess.HALVES:
        return {n: s if n in last or s <= 2 * FEW else s // 2 for n, s in known.by_call[0].items()}
    return {n: s if n in last or s <= 4 * less else s - s // 4 - less for n, s in known.by_call[0].items()}
