"""Drawings as numbers, in percent of their field from its upper left: `parts.html.j2` draws them.

Lines scale with the page and text does not, so that the same drawing is read on a telephone. Nothing here knows what
is drawn.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

STEPS = (1, 2, 2.5, 5, 10)  # of an axis, times a power of ten
AIR = 0.06  # of what is shown, left free at both ends of an axis


@dataclass(frozen=True)
class Tick:
    at: float
    label: str


@dataclass(frozen=True)
class Axis:
    low: float
    high: float
    ticks: tuple[float, ...]

    def at(self, x: float) -> float:
        return round(100 * (x - self.low) / (self.high - self.low), 3)

    def labels(self, unit: str = "") -> tuple[Tick, ...]:
        """With as many digits as tell neighbours apart."""
        step = self.ticks[1] - self.ticks[0] if len(self.ticks) > 1 else 1.0
        digits = next(d for d in range(12) if abs(round(step, d) - step) < step / 100)
        return tuple(Tick(self.at(t), f"{t:.{digits}f}{unit}") for t in self.ticks)


@dataclass(frozen=True)
class Series:
    name: str
    color: int  # which of the page's
    line: str  # path; empty: none
    dots: tuple[tuple[float, float, str], ...]  # across, down, what is told of it


@dataclass(frozen=True)
class Chart:
    about: str  # what it shows, for who cannot see it
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    one: float | None  # where 1 is, if it is shown
    series: tuple[Series, ...]
    below: str  # what the axis across is of


@dataclass(frozen=True)
class Span:
    """An interval beside a label, on an axis that its neighbours share."""

    low: float
    mid: float
    high: float


def axis(values: Iterable[float], whole: bool = False, most: int = 5, bare: bool = False) -> Axis:
    """An axis that holds all values, with at most about so many round ticks.

    `whole`: of counts, from 0. `bare`: no room is left beyond the outermost values.
    """
    found = list(values)
    low, high = min(found), max(found)
    low = min(low, 0.0) if whole else low
    if high - low < 1e-9:
        low, high = low - 0.01, high + 0.01
    room = 0.0 if bare else (high - low) * AIR
    low, high = (low if whole else low - room), high + room
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(s * power for s in STEPS if s * power >= rough * 0.999)
    step = max(1.0, step) if whole and high >= 1 else step
    first = math.ceil(low / step - 1e-9)
    ticks = tuple(n * step for n in range(first, math.floor(high / step + 1e-9) + 1))
    return Axis(low, high, ticks)


def steps(points: Sequence[tuple[float, float]], x: Axis, y: Axis) -> str:
    """A path that stays at each value until the next one."""
    (a, b), *rest = points
    return f"M{x.at(a)} {100 - y.at(b)}" + "".join(f"H{x.at(a)}V{round(100 - y.at(b), 3)}" for a, b in rest)


def line(points: Sequence[tuple[float, float]], x: Axis, y: Axis) -> str:
    return "M" + "L".join(f"{x.at(a)} {round(100 - y.at(b), 3)}" for a, b in points)


def spot(x: Axis, y: Axis, a: float, b: float, told: str) -> tuple[float, float, str]:
    return x.at(a), round(100 - y.at(b), 3), told


def upward(y: Axis, unit: str = "") -> tuple[Tick, ...]:
    return tuple(Tick(round(100 - t.at, 3), t.label) for t in y.labels(unit))


def one(y: Axis) -> float | None:
    return round(100 - y.at(1.0), 3) if y.low <= 1 <= y.high else None
