"""Line charts as numbers, in percent of their field from its upper left: `parts.html.j2` draws them.

Lines scale with the page and text does not, so that a chart is readable on a phone. Nothing here knows what is drawn.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pgo_agent.agent.views.charts.axes import Axis, Tick


@dataclass(frozen=True)
class Series:
    name: str
    color: int  # which of the page's
    line: str  # path; empty: none
    dots: tuple[tuple[float, float, str], ...]  # across, down, its text


@dataclass(frozen=True)
class Chart:
    about: str  # what it shows, for those who cannot see it
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    one: float | None  # where 1 is, if it is shown
    series: tuple[Series, ...]
    below: str  # the label of the axis across


@dataclass(frozen=True)
class Span:
    """An interval beside a label, on an axis that its neighbours share."""

    low: float
    mid: float
    high: float


def steps(points: Sequence[tuple[float, float]], x: Axis, y: Axis) -> str:
    """Return a path that stays at each value until the next one."""
    (a, b), *rest = points
    return f"M{x.at(a)} {100 - y.at(b)}" + "".join(f"H{x.at(a)}V{round(100 - y.at(b), 3)}" for a, b in rest)


def line(points: Sequence[tuple[float, float]], x: Axis, y: Axis) -> str:
    return "M" + "L".join(f"{x.at(a)} {round(100 - y.at(b), 3)}" for a, b in points)


def spot(x: Axis, y: Axis, a: float, b: float, text: str) -> tuple[float, float, str]:
    return x.at(a), round(100 - y.at(b), 3), text


def upward(y: Axis, unit: str = "") -> tuple[Tick, ...]:
    return tuple(Tick(round(100 - t.at, 3), t.label) for t in y.labels(unit))


def one(y: Axis) -> float | None:
    return round(100 - y.at(1.0), 3) if y.low <= 1 <= y.high else None
