"""The error of plain PyTorch in a case, from several inputs where few elements decide the largest error.

An output of one element, such as a loss, may be exact in plain PyTorch by chance. A kernel that adds in another order
and errs by one rounding would then count as wrong: 24 in 100 sums of 1000 float32 numbers did, and 9 in 100 sets of
five such sums. An output with few large elements, as of a softmax, is no better, because errors grow with magnitude.
So errors of further seeds are taken until there are enough. Relies on `numerics.py` for comparisons.
"""

import math
import secrets
import time
from collections.abc import Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

from pgo_agent.sandbox.judge.results import numerics
from pgo_agent.sandbox.judge.results.deviation import Error
from pgo_agent.sandbox.judge.results.numerics import Expected

ENOUGH = 256  # elements that suffice: 1 in 1500 sets of 64 sums in another order counted as wrong, of larger sets none
LARGE = 64  # elements at least half as large as the largest: smaller ones tell of errors, too
MOST = 64  # seeds
SECONDS = 20.0  # no further seed is begun after these


class Spread:
    """The errors of one target on one device. They are stored by case, because they do not depend on the seed."""

    def __init__(self, target: ModuleType, device: Any, arch: int | None = None) -> None:
        self.target, self.device, self.arch = target, device, arch
        self._drawn: dict[str, list[Expected]] = {}

    def expect(self, name: str, case: dict[str, object], seed: int) -> Expected:
        """As `numerics.expect`, with errors of enough seeds. The reference of the first case is tested for noise."""
        expected = numerics.expect(self.target, name, case, seed, self.device, twice=not self._drawn, arch=self.arch)
        if name not in self._drawn:
            self._drawn[name] = self._draws(expected, case)
        return surer(expected, self._drawn[name])

    def _draws(self, expected: Expected, case: dict[str, object]) -> list[Expected]:
        """Return results for further seeds, without outputs."""
        drawn, until = list[Expected](), time.monotonic() + SECONDS
        while len(drawn) + 1 < wanted(expected) and time.monotonic() < until:
            seed = secrets.randbits(48)
            further = numerics.expect(self.target, expected.case, case, seed, self.device, arch=self.arch)
            drawn.append(replace(further, outputs=()))
        return drawn


def wanted(expected: Expected) -> int:
    """Return how many seeds show ENOUGH elements of every floating-point output, and LARGE large ones."""
    pairs = zip(_elements(expected), expected.large, strict=True)
    seeds = [max(ENOUGH / elements, LARGE / large) for elements, large in pairs if elements]
    return min(MOST, math.ceil(max(seeds, default=1.0)))


def surer(expected: Expected, others: Sequence[Expected]) -> Expected:
    """Return it with the largest errors and floors of any seed, for outputs of few elements. For outputs of few large
    elements only the largest error changes. Figures of runs and signs stay where there are enough elements."""
    low, floors = list(expected.low), list(expected.floors)
    for i, (elements, large) in enumerate(zip(_elements(expected), expected.large, strict=True)):
        errors = [expected.low[i], *(o.low[i] for o in others)]
        allowed = [expected.floors[i], *(o.floors[i] for o in others)]
        worst, floor = max(e.worst for e in errors), max(f[0] for f in allowed)
        if 0 < elements < ENOUGH:
            low[i] = Error(worst, max(e.mean for e in errors), expected.low[i].misplaced)
            floors[i] = floor, max(f[1] for f in allowed)
        elif 0 < large < LARGE:
            low[i], floors[i] = replace(expected.low[i], worst=worst), (floor, expected.floors[i][1])
    return replace(expected, low=tuple(low), floors=tuple(floors))


def _elements(expected: Expected) -> list[int]:
    """Return the number of elements of each output; 0 for integers, which must be exact."""
    return [o.elements if "float" in d else 0 for o, d in zip(expected.outputs, expected.dtypes, strict=True)]
