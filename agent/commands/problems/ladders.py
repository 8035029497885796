"""What sizes are tried for the small and the held-out cases of a problem: the most telling first, the file's own last.

Sizes that are no multiples of a block find what masks forget. Small numbers stay: they count layers, groups, heads.
"""

from collections.abc import Collection, Iterator, Mapping

KEPT = 8  # a number up to this stays
FEW = 3  # up to so many sizes they are larger, for their product is what counts
EVEN, EVEN_OF_MANY = (16, 32, 64), (4, 8, 16)
RAGGED, RAGGED_OF_MANY = (5, 33, 19), (3, 9, 17, 11)
BESIDE_ROWS = (2, 3, 5, 7)  # sizes of cases whose rows are long
HIDDEN, HIDDEN_OF_MANY = (7, 45, 23), (5, 13, 7, 19)
MULTIPLES = (24, 40, 72, 56, 88)  # of eight
SHARE = (64, 32, 16, 8, 4, 2)  # what part of a size is tried
EVEN_CASE, RAGGED_CASE, ROWS_CASE, LAST_CASE, HIDDEN_CASE = "even", "ragged", "rows", "last", "odd"
Ladder = dict[str, list[int]]  # size -> what is tried for it


def ladders(sizes: Mapping[str, int], of_model: Collection[str]) -> dict[str, Ladder]:
    """Return case -> what is tried for each size. `of_model`: sizes that the model is made of.

    Kernels may hold a whole row: so there are cases whose rows stay as long as the problem's (ROWS_CASE, LAST_CASE).
    """
    even, ragged, hidden = (
        (EVEN, RAGGED, HIDDEN) if len(sizes) <= FEW else (EVEN_OF_MANY, RAGGED_OF_MANY, HIDDEN_OF_MANY)
    )
    return {
        EVEN_CASE: _ladder(sizes, even, ()),
        RAGGED_CASE: _ladder(sizes, ragged, MULTIPLES),
        ROWS_CASE: _ladder(sizes, BESIDE_ROWS, MULTIPLES, of_model),
        LAST_CASE: _ladder(sizes, BESIDE_ROWS, MULTIPLES),
        HIDDEN_CASE: _ladder(sizes, hidden, MULTIPLES[2:]),
    }


def _ladder(
    sizes: Mapping[str, int], first: tuple[int, ...], then: tuple[int, ...], kept: Collection[str] = ()
) -> Ladder:
    tried = {n: list(dict.fromkeys(_tried(i, v, first, then))) for i, (n, v) in enumerate(sizes.items())}
    return tried | {n: [sizes[n]] for n in sizes if n in kept}


def _tried(i: int, value: int, first: tuple[int, ...], then: tuple[int, ...]) -> Iterator[int]:
    if value > KEPT:
        turned = [*first[i % len(first) :], *first[: i % len(first)], *then]
        yield from (n for n in turned if n < value)
        yield from (value // s for s in SHARE if value // s >= 2)
    yield value
