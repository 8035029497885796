"""Charts as numbers: samples of a session as strips, ratios with intervals as a forest plot. Positions are percents.

Templates draw them in SVG whose text keeps its size however wide the page is. Without samples there is no chart.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pgo_agent.agent.views.charts.axes import Axis, Tick, axis
from pgo_agent.agent.views.report.timings import Case, SideTimes
from pgo_agent.sandbox.judge.timing.bootstrap import Interval

TALL = 34  # height of a strip: rounds go from its top to its bottom
TICKS = 6  # at most about so many


def scale(values: Iterable[float]) -> Axis | None:
    """Return an axis that holds all finite values; None when there is none."""
    finite = [x for x in values if math.isfinite(x)]
    return axis(finite, most=TICKS) if finite else None


@dataclass(frozen=True)
class Strip:
    """The samples of one side."""

    side: SideTimes
    dots: tuple[tuple[float, float], ...]  # percent across, units down
    low: float  # of the median's interval, percent
    width: float
    middle: float


@dataclass(frozen=True)
class Strips:
    rows: tuple[Strip, ...]
    ticks: tuple[Tick, ...]


def strips(case: Case) -> Strips | None:
    """Return the strips of a case; None without samples."""
    axis_ = scale(x for s in case.sides for x in s.ms)
    if axis_ is None:
        return None
    return Strips(tuple(_strip(s, axis_) for s in case.sides if s.ms), axis_.labels())


def _strip(s: SideTimes, scale: Axis) -> Strip:
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
    ticks: tuple[Tick, ...]
    noise: tuple[float, float] | None  # begin and width, percent: what a kernel seems to gain over itself


def forest(rows: Sequence[tuple[str, Interval, bool]], noise: Interval | None = None) -> Forest | None:
    """Return the plot; None without rows. `rows`: name, ratio, whether it is of all cases."""
    among = (x for _, i, _ in rows for x in (i.low, i.mid, i.high))
    axis_ = scale([1.0, *among, *((noise.low, noise.high) if noise else ())]) if rows else None
    if axis_ is None:
        return None
    band = (axis_.at(noise.low), round(axis_.at(noise.high) - axis_.at(noise.low), 3)) if noise else None
    return Forest(tuple(_marks(rows, axis_)), axis_.at(1.0), axis_.labels(), band)


def _marks(rows: Iterable[tuple[str, Interval, bool]], scale: Axis) -> Iterator[Mark]:
    for name, i, whole in rows:
        low, high = scale.at(i.low), scale.at(i.high)
        look = "gain" if i.low > 1 else "loss" if i.high < 1 else "even"
        yield Mark(name, i, whole, low, round(high - low, 3), scale.at(i.mid), look)
