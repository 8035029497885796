"""How far plain PyTorch errs in a case: from more inputs than one, where few elements decide the largest error.

An output of one element, such as a loss, may come out exact of plain PyTorch by chance. A kernel that adds in another
order and errs by one rounding would then be wrong: of sums of 1000 float32 numbers 24 in 100 were, of five such sums 9
in 100 sets. An output of many elements is no better where few of them are large, as in a softmax: errors grow with
magnitude, so the largest is one of theirs. So errors are taken of further seeds, until there are as many as tell.
Relies on `numerics.py`, which compares.
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

ENOUGH = 256  # elements whose errors tell: of 64 sums in another order 1 set in 1500 was wrong, of more none
MOST = 64  # seeds
SECONDS = 20.0  # no further seed is begun after these


class Spread:
    """Of one target on one device. What was found of a case is kept: it does not hang on the seed."""

    def __init__(self, target: ModuleType, device: Any) -> None:
        self.target, self.device = target, device
        self._drawn: dict[str, list[Expected]] = {}

    def expect(self, name: str, case: dict[str, Any], seed: int) -> Expected:
        """As `numerics.expect`, with errors that are no matter of chance; in the first case, the reference is called
        once more. Raises TargetFault.
        """
        own = numerics.expect(self.target, name, case, seed, self.device, twice=not self._drawn)
        if name not in self._drawn:
            self._drawn[name] = self._draws(own, case)
        return surer(own, self._drawn[name])

    def _draws(self, own: Expected, case: dict[str, Any]) -> list[Expected]:
        """Without the outputs, which are not needed."""
        drawn, until = list[Expected](), time.monotonic() + SECONDS
        while len(drawn) + 1 < wanted(own) and time.monotonic() < until:
            found = numerics.expect(self.target, own.case, case, secrets.randbits(48), self.device)
            drawn.append(replace(found, outputs=()))
        return drawn


def wanted(expected: Expected) -> int:
    """Seeds that show ENOUGH errors of the large elements of every output in floating point."""
    few = [n for n in _large(expected) if n]
    return min(MOST, math.ceil(ENOUGH / min(few))) if few else 1


def surer(own: Expected, others: Sequence[Expected]) -> Expected:
    """With the largest errors and floors that any seed shows: in outputs of few elements, and of few large ones the
    largest error alone. Bounds of runs and of signs stay, where an output has enough elements for them."""
    low, floors = list(own.low), list(own.floors)
    for i, (elements, large) in enumerate(zip(_elements(own), _large(own), strict=True)):
        errors = [own.low[i], *(o.low[i] for o in others)]
        allowed = [own.floors[i], *(o.floors[i] for o in others)]
        worst, floor = max(e.worst for e in errors), max(f[0] for f in allowed)
        if 0 < elements < ENOUGH:
            low[i] = Error(worst, max(e.mean for e in errors), own.low[i].misplaced)
            floors[i] = floor, max(f[1] for f in allowed)
        elif 0 < large < ENOUGH:
            low[i], floors[i] = replace(own.low[i], worst=worst), (floor, own.floors[i][1])
    return replace(own, low=tuple(low), floors=tuple(floors))


def _elements(expected: Expected) -> list[int]:
    """Of each output; none of integers, which must be exact."""
    return [o.numel() if "float" in d else 0 for o, d in zip(expected.outputs, expected.dtypes, strict=True)]


def _large(expected: Expected) -> list[int]:
    """Elements of each output that are at least half as large as its largest one; none of integers."""
    pairs = zip(expected.outputs, expected.dtypes, strict=True)
    return [_at_least_half(o.nan_to_num(0.0, 0.0, 0.0).abs()) if "float" in d and o.numel() else 0 for o, d in pairs]


def _at_least_half(magnitudes: Any) -> int:
    return int((magnitudes >= magnitudes.max() / 2).sum())
