"""Cases around the edges of guards: what a caller may bring that no case has.

Of each number of a region's cases: one below its least value, one above its largest, what is not divisible as those
are, zero, and one between them. Flags are turned, and words (dtypes, layouts) are those of other cases. A probe is a
case of the target with one parameter changed; where inputs() or the original itself fails there, nothing is asked.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pgo_agent.sandbox.json_codec import JsonObject

MOST = 48  # of one dispatch
UNIT = 16  # that Triton compiles for


@dataclass(frozen=True)
class Probe:
    """A public case with one parameter changed."""

    case: str  # without its set
    parameter: str
    value: object

    @property
    def name(self) -> str:
        return f"{self.case} {self.parameter}={self.value}"

    @property
    def text(self) -> str:
        """The entry of CASES."""
        return f"{self.name!r}: {{**CASES[{self.case!r}], {self.parameter!r}: {self.value!r}}}"


def around(regions: Sequence[Sequence[str]], parameters: Mapping[str, JsonObject]) -> list[Probe]:
    """Return the probes of regions, each given by its cases; the edges of each parameter in turn, at most MOST.

    `parameters`: case -> its parameters, of all public cases.
    """
    by_region = [list(_of_region(cases, parameters)) for cases in regions]
    turns = [p for i in range(max(map(len, by_region), default=0)) for of in by_region for p in of[i : i + 1]]
    known = [dict(p) for p in parameters.values()]
    new = [p for p in dict.fromkeys(turns) if {**parameters[p.case], p.parameter: p.value} not in known]
    return new[:MOST]


def _of_region(cases: Sequence[str], parameters: Mapping[str, JsonObject]) -> Iterator[Probe]:
    edges = [list(_edges(name, cases, parameters)) for name in parameters[cases[0]]]
    for i in range(max(map(len, edges), default=0)):
        for of in edges:
            yield from of[i : i + 1]


def _edges(name: str, cases: Sequence[str], parameters: Mapping[str, JsonObject]) -> Iterator[Probe]:
    values = {c: parameters[c].get(name) for c in cases}
    numbers = {c: v for c, v in values.items() if type(v) is int}
    if len(numbers) == len(values):
        yield from _sizes(name, numbers)
    elif all(isinstance(v, bool) for v in values.values()):
        yield Probe(cases[0], name, not values[cases[0]])
    elif all(isinstance(v, str) for v in values.values()):
        others = {p.get(name) for p in parameters.values()} - set(values.values())
        yield from (Probe(cases[0], name, v) for v in sorted(o for o in others if isinstance(o, str)))


def _sizes(name: str, numbers: Mapping[str, int]) -> Iterator[Probe]:
    least, largest = min(numbers, key=lambda c: numbers[c]), max(numbers, key=lambda c: numbers[c])
    low, high, unit = numbers[least], numbers[largest], math.gcd(UNIT, *numbers.values())
    if low < high:
        middle = math.isqrt(low * high) // unit * unit
        yield from (Probe(least, name, v) for v in (middle, low + unit) if low < v < high)
    yield Probe(largest, name, high + 1)
    yield Probe(least, name, max(low - 1, 0))
    yield Probe(largest, name, high + unit)
    if high - 1 > low:
        yield Probe(largest, name, high - 1)
    yield Probe(least, name, max(low - unit, 0))
    yield Probe(least, name, 0)
