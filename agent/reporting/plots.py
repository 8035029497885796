"""Drawings as numbers: samples of a session as strips, ratios with their intervals as a forest. Places are percents.

Templates draw them in SVG whose text keeps its size however wide the page is. Nothing is drawn of nothing.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pgo_agent.agent.reporting.measured import Case, Side
from pgo_agent.sandbox.judge.stats import Interval

PAD = 0.04  # of the width, on both sides of what is drawn
TALL = 34  # units of a strip: rounds go from its top to its bottom
TICKS = 3  # at least so many


@dataclass(frozen=True)
class Scale:
    """From values to percents."""

    low: float
    high: float

    def at(self, x: float) -> float:
        return round(100 * (x - self.low) / (self.high - self.low), 3)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Round numbers within, with their places."""
        step = _round((self.high - self.low) / TICKS)
        digits = max(0, -math.floor(math.log10(step) + 1e-9))
        first = math.ceil(self.low / step - 1e-9)
        numbers = (i * step for i in range(first, math.floor(self.high / step + 1e-9) + 1))
        return [(self.at(x), f"{x:.{digits}f}") for x in numbers]


def scale(values: Iterable[float]) -> Scale | None:
    """That holds all of them with some room; None where none is a number."""
    found = [x for x in values if math.isfinite(x)]
    if not found:
        return None
    low, high = min(found), max(found)
    room = (high - low) * PAD or abs(high) * PAD or 1.0
    return Scale(low - room, high + room)


def _round(x: float) -> float:
    """The largest of 1, 2 and 5 times a power of ten that is not above x."""
    power = 10.0 ** math.floor(math.log10(x))
    return next(m * power for m in (5, 2, 1) if m * power <= x * (1 + 1e-9))


@dataclass(frozen=True)
class Strip:
    """The samples of one side."""

    side: Side
    dots: tuple[tuple[float, float], ...]  # percent across, units down
    low: float  # of the median's interval, percent
    width: float
    middle: float


@dataclass(frozen=True)
class Strips:
    rows: tuple[Strip, ...]
    ticks: tuple[tuple[float, str], ...]


def strips(case: Case) -> Strips | None:
    """None without samples."""
    found = scale(x for s in case.sides for x in s.ms)
    if found is None:
        return None
    return Strips(tuple(_strip(s, found) for s in case.sides if s.ms), tuple(found.ticks))


def _strip(s: Side, scale: Scale) -> Strip:
    step = (TALL - 6) / max(1, len(s.ms) - 1)
    dots = tuple((scale.at(x), round(3 + i * step, 2)) for i, x in enumerate(s.ms) if math.isfinite(x))
    low, high = scale.at(s.median.low), scale.at(s.median.high)
    return Strip(s, dots, low, round(high - low, 3), scale.at(s.median.mid))


@dataclass(frozen=True)
class Mark:
    """One ratio with its interval."""

    name: str
    interval: Interval
    whole: bool  # of all cases together
    low: float  # percent
    width: float
    middle: float
    look: str  # gain, loss or even


@dataclass(frozen=True)
class Forest:
    rows: tuple[Mark, ...]
    one: float  # where 1 is
    ticks: tuple[tuple[float, str], ...]
    noise: tuple[float, float] | None  # percent, and how wide: what a kernel seems to gain over itself


def forest(rows: Sequence[tuple[str, Interval, bool]], noise: Interval | None = None) -> Forest | None:
    """`rows`: name, ratio, whether it is of all cases. None without rows."""
    among = (x for _, i, _ in rows for x in (i.low, i.mid, i.high))
    found = scale([1.0, *among, *((noise.low, noise.high) if noise else ())]) if rows else None
    if found is None:
        return None
    band = (found.at(noise.low), round(found.at(noise.high) - found.at(noise.low), 3)) if noise else None
    return Forest(tuple(_marks(rows, found)), found.at(1.0), tuple(found.ticks), band)


def _marks(rows: Iterable[tuple[str, Interval, bool]], scale: Scale) -> Iterator[Mark]:
    for name, i, whole in rows:
        low, high = scale.at(i.low), scale.at(i.high)
        look = "gain" if i.low > 1 else "loss" if i.high < 1 else "even"
        yield Mark(name, i, whole, low, round(high - low, 3), scale.at(i.mid), look)
