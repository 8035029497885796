"""What is drawn of rows: the trend over nights, the searches, and intervals beside one another."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from pgo_agent.agent.views.charts import lines
from pgo_agent.agent.views.charts.axes import Axis, Tick, axis
from pgo_agent.agent.views.charts.lines import Chart, Series, Span
from pgo_agent.evals.ablation.scores import bests
from pgo_agent.evals.leaderboard.rank import Board
from pgo_agent.evals.nightly.report import mean
from pgo_agent.evals.nightly.row import TUNED, Row
from pgo_agent.sandbox.judge.timing.bootstrap import Interval

LABELS = 6  # of nights, at most
Colors = Mapping[str, int]  # of optimizers


@dataclass(frozen=True)
class Beside:
    """An interval that is to be drawn beside others."""

    label: str
    note: str
    color: int
    interval: Interval
    said: str
    link: str = ""


@dataclass(frozen=True)
class Bars:
    bars: tuple[tuple[Beside, Span], ...]
    ticks: tuple[Tick, ...]
    one: float


def bars(listed: Sequence[Beside]) -> Bars | None:
    """Return intervals on one axis, which shows 1; None without intervals."""
    if not listed:
        return None
    x = axis([1.0, *(v for b in listed for v in (b.interval.low, b.interval.high))], most=4)
    spans = (Span(x.at(b.interval.low), x.at(b.interval.mid), x.at(b.interval.high)) for b in listed)
    return Bars(tuple(zip(listed, spans, strict=True)), x.labels(), x.at(1.0))


def trend(board: Board, colors: Colors) -> Chart | None:
    """Return each optimizer's mean of tuned, night by night; every seed is a dot. None for one night alone."""
    nights = board.nights
    if len(nights) < 2:
        return None
    x = Axis(-0.5, len(nights) - 0.5, tuple(range(len(nights))))
    y = axis([1.0, *(r.middle(TUNED) for _, rows in nights for r in rows)])
    every = max(1, math.ceil(len(nights) / LABELS))
    across = tuple(Tick(x.at(n), label) for n, (label, _) in enumerate(nights) if n % every == 0)
    title = f"{board.kernels[0]}: times faster than tuned, night by night"
    series = tuple(_trend(o, colors[o], nights, x, y) for o in board.optimizers)
    return Chart(title, across, lines.upward(y, "x"), lines.one(y), series, "night")


def _trend(optimizer: str, color: int, nights: Sequence[tuple[str, list[Row]]], x: Axis, y: Axis) -> Series:
    by_night = [(n, label, [r for r in rows if r.optimizer == optimizer]) for n, (label, rows) in enumerate(nights)]
    means = [(n, m) for n, _, rows in by_night if (m := mean(rows, TUNED)) is not None]
    dots = (lines.spot(x, y, n, r.middle(TUNED), _dot(label, r)) for n, label, rows in by_night for r in rows)
    return Series(optimizer, color, lines.line(means, x, y), tuple(dots))


def _dot(label: str, r: Row) -> str:
    seed = "" if r.seed is None else f", seed {r.seed}"
    return f"{label}{seed}: {'failed' if r.failed else f'{r.middle(TUNED):.3f}x'}"


def by_candidates(rows: Sequence[Row], colors: Colors) -> Chart | None:
    return _search(rows, colors, [[float(n) for n in range(len(r.candidates) + 1)] for r in rows], "candidates judged")


def by_seconds(rows: Sequence[Row], colors: Colors) -> Chart | None:
    spent = [list(accumulate((t.seconds for t in r.candidates), initial=0.0)) for r in rows]
    return _search(rows, colors, spent, "seconds of the GPU, judging candidates")


def _search(rows: Sequence[Row], colors: Colors, spent: Sequence[Sequence[float]], below: str) -> Chart | None:
    """Return the best gain so far over the kernel as shipped, of each row. None where nothing was judged."""
    searches = [(r, list(zip(at, _gains(r), strict=True))) for r, at in zip(rows, spent, strict=True) if r.candidates]
    if not searches:
        return None
    x = axis([0.0, *(a for _, points in searches for a, _ in points)], whole=True, bare=True)
    y = axis([1.0, *(g for _, points in searches for _, g in points)])
    series = tuple(_line(r, points, colors[r.optimizer], x, y) for r, points in searches)
    title = f"{rows[0].kernel}: best gain so far over the kernel as shipped, by {below}"
    return Chart(title, x.labels(), lines.upward(y, "x"), lines.one(y), series, below)


def _gains(r: Row) -> Iterable[float]:
    return [1.0, *(math.exp(g) for g in bests(r.candidates))]


def _line(r: Row, points: Sequence[tuple[float, float]], color: int, x: Axis, y: Axis) -> Series:
    rises = [n for n in range(1, len(points)) if points[n][1] > points[n - 1][1]]
    dots = (lines.spot(x, y, *points[n], f"{r.candidates[n - 1].move}: {points[n][1]:.3f}x") for n in rises)
    return Series(r.optimizer, color, lines.steps(points, x, y), tuple(dots))
