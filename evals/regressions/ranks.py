"""Mann and Whitney's U test, one-sided, and Holm's correction for many of them. No tables, no scipy.

Without ties the distribution of U is counted exactly; with ties, or with many samples, it is the normal approximation
with their correction and one for continuity (Mann and Whitney, 1947; Lehmann, Nonparametrics, 1975). Relies on nothing.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TypeVar

MOST_EXACT = 2500  # pairs of samples up to which U is counted
Key = TypeVar("Key")


def larger(one: Sequence[float], other: Sequence[float]) -> float:
    """The chance of samples of `other` this much larger than those of `one`, or more, if both come from one source."""
    if not one or not other:
        raise ValueError("there is nothing to compare")
    ties = [n for n in Counter([*one, *other]).values() if n > 1]
    u = statistic(one, other)
    if not ties and len(one) * len(other) <= MOST_EXACT:
        return _exact(int(u), len(one), len(other))
    return _normal(u, len(one), len(other), ties)


def statistic(one: Sequence[float], other: Sequence[float]) -> float:
    """U: in how many pairs the sample of `other` is the larger; equal ones count half."""
    return sum((y > x) + 0.5 * (y == x) for x in one for y in other)


def _exact(u: int, n: int, m: int) -> float:
    ways = _ways(n, m)
    return sum(ways[u:]) / sum(ways)


@cache
def _ways(n: int, m: int) -> tuple[int, ...]:
    """For each U, how many orders of n and m samples have it: the coefficients of a Gaussian binomial."""
    found = [1]
    for i in range(1, m + 1):
        found = _divided(_times(found, n + i), i)
    return tuple(found)


def _times(p: Sequence[int], k: int) -> list[int]:
    """p times (1 - q^k)."""
    return [(p[i] if i < len(p) else 0) - (p[i - k] if i >= k else 0) for i in range(len(p) + k)]


def _divided(p: list[int], k: int) -> list[int]:
    """p over (1 - q^k), which leaves nothing."""
    found: list[int] = []
    for i in range(len(p) - k):
        found.append(p[i] + (found[i - k] if i >= k else 0))
    return found


def _normal(u: float, n: int, m: int, ties: Sequence[int]) -> float:
    total = n + m
    variance = n * m / 12 * (total + 1 - sum(t**3 - t for t in ties) / (total * (total - 1)))
    if variance <= 0:  # all samples are equal
        return 1.0
    return 0.5 * math.erfc((u - n * m / 2 - 0.5) / math.sqrt(2 * variance))


def holm(chances: Mapping[Key, float]) -> dict[Key, float]:
    """Chances corrected so that any false word among all of them is as rare as each alone (Holm, 1979)."""
    most, found = 0.0, dict[Key, float]()
    for n, key in enumerate(sorted(chances, key=lambda k: chances[k])):
        most = max(most, min(1.0, chances[key] * (len(chances) - n)))
        found[key] = most
    return found
