"""Separates two groups of cases by a Python condition on the arguments of the launcher.

Reads the recorded inputs of plans: shape, strides and dtype of tensors, and plain values. A condition holds for every
case of one group and for none of the other. Of several, the simplest with sizes far apart is taken. A size in between
goes to the nearer group.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pgo_agent.sandbox.json_codec import JsonObject

Inputs = Mapping[str, Any]  # of a plan: name -> {"dtype", "size", "stride"} or a plain value
ALIGNED = 8  # elements: 16 bytes of a two-byte type, which vector loads and descriptors ask of rows
NEAR, STRANGE = 1.5, 1.25  # sizes apart by less cost as much as a second test; a dtype is rarely the reason


@dataclass(frozen=True)
class Test:
    """One comparison, and which of the inputs pass it."""

    text: str
    cost: float
    passed: frozenset[int]


def condition(wins: Sequence[Inputs], losses: Sequence[Inputs]) -> str | None:
    """Return a condition of at most two comparisons that holds for all wins and for no loss; None if there is none."""
    everything = [_features(x) for x in (*wins, *losses)]
    ours, theirs = frozenset(range(len(wins))), frozenset(range(len(wins), len(everything)))
    usable = [t for t in _tests(everything, len(wins)) if ours <= t.passed and theirs - t.passed]
    options: list[tuple[Test, ...]] = [(t,) for t in usable if not theirs & t.passed]
    options += [pair for pair in itertools.combinations(usable, 2) if not theirs & pair[0].passed & pair[1].passed]
    best = min(options, key=lambda tests: sum(t.cost for t in tests), default=None)
    return " and ".join(t.text for t in best) if best else None


def _features(inputs: Inputs) -> JsonObject:
    """Expressions over the launcher's arguments, and their values."""
    values: JsonObject = {}
    for name, x in inputs.items():
        if isinstance(x, Mapping) and "size" in x:
            values |= {f"{name}.shape[{i}]": n for i, n in enumerate(x["size"])}
            values |= {f"{name}.stride({i})": n for i, n in enumerate(x["stride"])}
            values[f"{name}.dtype"] = f"torch.{x['dtype']}"
        elif isinstance(x, bool | int):
            values[name] = x
    return values


def _tests(everything: Sequence[Mapping[str, Any]], wins: int) -> Iterator[Test]:
    common = [e for e in everything[0] if all(e in x for x in everything)]
    for e in common:
        values = [x[e] for x in everything]
        if all(isinstance(v, bool) for v in values):
            yield Test(e, 1.0, _where(values))
            yield Test(f"not {e}", 1.0, _where([not v for v in values]))
        elif isinstance(values[0], str):
            yield Test(f"{e} == {values[0]}", 1.0 + STRANGE, _where([v == values[0] for v in values]))
        elif ".stride(" in e:
            yield Test(f"{e} == 1", 1.0, _where([v == 1 for v in values]))
            yield Test(f"{e} % {ALIGNED} == 0", 1.0, _where([v % ALIGNED == 0 for v in values]))
        elif all(type(v) is int for v in values):
            yield from _sizes(e, values, wins)


def _sizes(e: str, values: Sequence[int], wins: int) -> Iterator[Test]:
    """Tests for at least, and at most, a size between those of the wins and one of a loss."""
    low, high = min(values[:wins]), max(values[:wins])
    for other in sorted(set(values[wins:])):
        if 0 < other < low:
            at = math.isqrt(other * low - 1) + 1
            yield Test(f"{e} >= {at}", _cost(low / other), _where([v >= at for v in values]))
        if 0 < high < other:
            at = math.isqrt(other * high)
            yield Test(f"{e} <= {at}", _cost(other / high), _where([v <= at for v in values]))


def _cost(apart: float) -> float:
    return 1.0 if apart >= NEAR else 2.5


def _where(values: Sequence[bool]) -> frozenset[int]:
    return frozenset(i for i, v in enumerate(values) if v)
