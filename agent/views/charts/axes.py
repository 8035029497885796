"""Axes of charts: the position of a value, in percent, and the round numbers to write beside the axis."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

STEPS = (1, 2, 2.5, 5, 10)  # between ticks, times a power of ten
AIR = 0.06  # of the range, left free at both ends
EQUAL = 1e-9  # of the larger of two values: closer values are drawn as one


@dataclass(frozen=True)
class Tick:
    at: float  # in the chart's unit: percent for an Axis
    label: str


@dataclass(frozen=True)
class Axis:
    low: float
    high: float
    ticks: tuple[float, ...]

    def at(self, x: float) -> float:
        return round(100 * (x - self.low) / (self.high - self.low), 3)

    def labels(self, unit: str = "") -> tuple[Tick, ...]:
        """Return the ticks with as many digits as distinguish neighbours."""
        step = self.ticks[1] - self.ticks[0] if len(self.ticks) > 1 else 1.0
        digits = next((d for d in range(18) if abs(round(step, d) - step) < step / 100), 18)
        return tuple(Tick(self.at(t), f"{t:.{digits}f}{unit}") for t in self.ticks)


def axis(values: Iterable[float], whole: bool = False, most: int = 5, bare: bool = False) -> Axis:
    """Return an axis that holds all values (at least one), with at most about `most` round ticks.

    `whole`: of counts, from 0. `bare`: no room is left beyond the outermost values.
    """
    listed = list(values)
    low, high = min(listed), max(listed)
    low = min(low, 0.0) if whole else low
    if high - low <= EQUAL * max(abs(low), abs(high)):
        around = abs(high) * AIR or 1.0
        low, high = low - around, high + around
    room = 0.0 if bare else (high - low) * AIR
    low, high = (low if whole else low - room), high + room
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(s * power for s in STEPS if s * power >= rough * 0.999)
    step = max(1.0, step) if whole and high >= 1 else step
    first = math.ceil(low / step - 1e-9)
    return Axis(low, high, tuple(n * step for n in range(first, math.floor(high / step + 1e-9) + 1)))
