"""A roofline plot as numbers: both axes logarithmic, FLOP per byte against FLOP/s. `page.html.j2` draws it."""

import math
from dataclasses import dataclass

from pgo_agent.agent.views.charts.axes import Tick
from pgo_agent.agent.views.profile import format
from pgo_agent.sandbox.profile.kernel_profile import Roofline

WIDTH, HEIGHT = 560, 300
LEFT, RIGHT, TOP, BOTTOM = 78, 16, 14, 40  # margins
AIR = 3.0  # factor beyond the outermost values shown


@dataclass(frozen=True)
class Plot:
    """Pixels from the upper left."""

    width: int
    height: int
    left: int
    right: int  # of the plot itself
    top: int
    bottom: int
    roof: str  # points of a polyline
    point: tuple[float, float]
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    label: str  # at the point
    peaks: tuple[tuple[float, float, str], ...]  # what each roof is called, and where: compute, memory


@dataclass(frozen=True)
class _Axis:
    low: float  # of log10
    high: float
    begin: float  # pixels
    end: float

    def at(self, x: float) -> float:
        where = (math.log10(x) - self.low) / (self.high - self.low)
        return round(self.begin + where * (self.end - self.begin), 1)

    @property
    def decades(self) -> list[float]:
        return [10.0**e for e in range(math.ceil(self.low), math.floor(self.high) + 1)]


def plot(r: Roofline) -> Plot | None:
    """Return the plot; None when a logarithm is undefined: no arithmetic, no bytes, no time."""
    if min(r.flops, r.bytes, r.seconds, r.peak_flops, r.peak_bytes) <= 0:
        return None
    ridge, reached = r.peak_flops / r.peak_bytes, r.flops / r.seconds
    low, high = min(r.intensity, ridge) / AIR, max(r.intensity, ridge) * AIR
    bottom = min(reached, low * r.peak_bytes) / AIR
    x = _Axis(math.log10(low), math.log10(high), LEFT, WIDTH - RIGHT)
    y = _Axis(math.log10(bottom), math.log10(max(r.peak_flops, reached) * AIR), HEIGHT - BOTTOM, TOP)
    corners = ((low, low * r.peak_bytes), (ridge, r.peak_flops), (high, r.peak_flops))
    return Plot(
        WIDTH, HEIGHT, LEFT, WIDTH - RIGHT, TOP, HEIGHT - BOTTOM,
        " ".join(f"{x.at(a)},{y.at(b)}" for a, b in corners),
        (x.at(r.intensity), y.at(reached)),
        tuple(Tick(x.at(v), f"{v:,.0f}" if v >= 1 else f"{v:g}") for v in x.decades),
        tuple(Tick(y.at(v), format.scaled(v, "FLOP/s")) for v in y.decades),
        f"{format.scaled(reached, 'FLOP/s')}, {format.percent(r.reached)} of the roof",
        (
            (x.at(high), y.at(r.peak_flops) - 7, format.scaled(r.peak_flops, "FLOP/s")),
            (x.at(ridge) - 10, y.at(r.peak_flops) - 7, format.scaled(r.peak_bytes, "B/s")),
        ),
    )  # fmt: skip
