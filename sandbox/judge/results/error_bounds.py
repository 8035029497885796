"""What an output may err: beside its largest and its mean error, those of its worst run, and the side that all lean to.

Bounds of a whole output hide what is wrong in a few of its rows: keys that are left out for the last of them. So the
largest error of any run of neighbours, as a share of what the run holds (`deviation.Runs`), is held to the same figure
of plain PyTorch:
    run <= slack * low's run + rounding     slack 2 (1 + 8 / sqrt(runs)); runs 64 and more
`rounding` is half a unit in the last place of a run's mean, and two units of its largest; of a result in fp32 four of
each, for a row shares one quotient and its exponentials, and the GPU's fast ones err by 2 units each (div.full.f32 and
ex2.approx.f32 in the PTX manual). Both figures are maxima over
as many runs: of 64 normal ones the ratio of two such maxima spreads by a quarter, and the bound is more than ten times
that away from 1; of more runs it spreads less.

And bounds of magnitudes hide that all errors have one sign. Of a result in 16 bits or less |mean signed error| <=
max(0.5, 2 * low's) half units in the last place + 6 standard errors Rounding to nearest gives 0 of it, cutting digits
off gives 1. Under stress inputs, which leave few different numbers, neither is asked. Relies on `deviation.py`, which
measures; what the reference errs is `numerics.py`'s.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from pgo_agent.sandbox.gate.reason import NONE, Reason, figure, plain
from pgo_agent.sandbox.judge.results.deviation import Error, Runs

RATIOS = {"max_ratio": 2.0, "mean_ratio": 1.5}  # what TOLERANCE of a target takes the place of
RUN_RATIO, FEW = 2.0, 8.0  # slack of runs
FAST = 4  # units in the last place: fast division and exp2 of a GPU, 2 each
LEAN, SIGMAS = 0.5, 6.0  # half units in the last place; standard errors
MARGIN = 1.05  # of ratios that are said to admit an error


class Bound(NamedTuple):
    """What one output must keep; None: that is not asked of it."""

    worst: float
    mean: float
    run_worst: float | None = None
    run_mean: float | None = None
    lean: float | None = None

    def problem(self, i: int, error: Error) -> Reason:
        """What an error of output `i` breaks first; empty when it keeps all."""
        if error.misplaced:
            words = f"{error.misplaced} elements are NaN or infinite where the reference is not, or the reverse"
            return plain(f"output {i}: {words}")
        runs, lean = error.runs or Runs(0, 0.0, 0.0), error.lean.most[0] if error.lean else 0.0
        for what, found, most in (
            ("max error", error.worst, self.worst),
            ("mean error", error.mean, self.mean),
            (
                "a few rows err more than all others may: max error, of their largest element,",
                runs.worst,
                self.run_worst,
            ),
            ("a few rows err more than all others may: mean error, of their mean element,", runs.mean, self.run_mean),
            ("errors lean to one side, as where digits are cut off: by half units in the last place,", lean, self.lean),
        ):
            if most is not None and not found <= most:
                return figure(what, i, found, most)
        return NONE


@dataclass(frozen=True)
class Held:
    """An error of one output, and what it is held to."""

    error: Error
    low: Error  # of the reference in its own precision
    floor: tuple[float, float]  # (max, mean): what rounding alone may cost
    dtype: str

    @property
    def eps(self) -> float:
        return float(torch.finfo(getattr(torch, self.dtype)).eps) if "float" in self.dtype else 0.0

    def bound(self, tolerance: Mapping[str, float]) -> Bound:
        """By a target's own ratios where it has them; those of runs and leans are as much looser."""
        given = RATIOS | dict(tolerance)
        most, mean = given["max_ratio"], given["mean_ratio"]
        more, low = {n: given[n] / RATIOS[n] for n in RATIOS}, self.low
        found: dict[str, Any] = {"worst": most * low.worst + self.floor[0], "mean": mean * low.mean + self.floor[1]}
        if low.runs and self.error.runs:
            found["run_worst"] = more["max_ratio"] * self._slack * low.runs.worst + self._rounding[0]
            found["run_mean"] = more["mean_ratio"] * self._slack * low.runs.mean + self._rounding[1]
        if low.lean and self.error.lean:
            found["lean"] = more["mean_ratio"] * self._leaning + SIGMAS * self.error.lean.most[1]
        return Bound(**found)

    def ratios(self) -> Iterator[tuple[str, float]]:
        """What each of the ratios would have to be, by each bound that hangs on it; infinite where none would do."""
        error, low = self.error, self.low
        yield "max_ratio", _over(error.worst - self.floor[0], low.worst)
        yield "mean_ratio", _over(error.mean - self.floor[1], low.mean)
        if low.runs and error.runs:
            yield (
                "max_ratio",
                RATIOS["max_ratio"] * _over(error.runs.worst - self._rounding[0], self._slack * low.runs.worst),
            )
            yield (
                "mean_ratio",
                RATIOS["mean_ratio"] * _over(error.runs.mean - self._rounding[1], self._slack * low.runs.mean),
            )
        if low.lean and error.lean:
            lean, sigma = error.lean.most
            yield "mean_ratio", RATIOS["mean_ratio"] * _over(lean - SIGMAS * sigma, self._leaning)

    @property
    def _rounding(self) -> tuple[float, float]:
        """What rounding alone may cost a run: of its largest element, and of its mean one."""
        fast = FAST * self.eps
        return (fast, fast) if self.dtype == "float32" else (2 * self.eps, self.eps / 2)

    @property
    def _slack(self) -> float:
        return RUN_RATIO * (1 + FEW / math.sqrt(self.low.runs.count)) if self.low.runs else 1.0

    @property
    def _leaning(self) -> float:
        return max(LEAN, 2 * self.low.lean.most[0]) if self.low.lean else LEAN


def admits(held: Sequence[Held]) -> dict[str, float] | None:
    """The TOLERANCE that would let all these errors pass, with some room; None where none does."""
    found = dict(RATIOS)
    for h in held:
        if h.error.misplaced:
            return None
        for name, ratio in h.ratios():
            found[name] = max(found[name], ratio)
    if not all(map(math.isfinite, found.values())):
        return None
    return {n: x if x == RATIOS[n] else _rounded_up(MARGIN * x) for n, x in found.items()}


def _over(error: float, low: float) -> float:
    return 0.0 if error <= 0 else error / low if low else math.inf


def _rounded_up(x: float) -> float:
    """To two digits."""
    step = 10.0 ** (math.floor(math.log10(x)) - 1)
    return round(math.ceil(x / step) * step, 6)
