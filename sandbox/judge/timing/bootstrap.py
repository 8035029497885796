"""Ratios of paired samples, with confidence intervals. Relies on numpy only: the GPU machine needs no scipy.

A round of timing visits every side twice in mirrored order (A B .. B A), so that a drift of the clocks falls on all
sides alike; the sample of a side is the mean of both visits. Intervals are percentile bootstraps of the median of the
rounds' ratios (Efron and Tibshirani, 1993), over 2000 resamples with a fixed seed: the same samples give the same
interval.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 2000
LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    low: float
    mid: float
    high: float

    def as_json(self) -> list[float]:
        return [round(x, 6) for x in (self.low, self.mid, self.high)]


def middle(base: Sequence[float], other: Sequence[float]) -> float:
    """Return the median ratio of paired samples."""
    return float(np.median(np.asarray(base, dtype=float) / np.asarray(other, dtype=float)))


def ratio(base: Sequence[float], other: Sequence[float], level: float = LEVEL) -> Interval:
    """Return how many times faster `other` is than `base`: the interval of the median ratio of paired samples."""
    return geomean({"": (base, other)}, level=level)


def geomean(
    pairs: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    weights: Mapping[str, float] | None = None,
    level: float = LEVEL,
) -> Interval:
    """Return the interval of the weighted geometric mean over cases of the median ratios base/other."""
    rng = np.random.default_rng(20261120)
    total, boot, weight_sum = 0.0, np.zeros(RESAMPLES), 0.0
    for case, (base, other) in pairs.items():
        weight = (weights or {}).get(case, 1.0)
        ratios = np.asarray(base, dtype=float) / np.asarray(other, dtype=float)
        picks = rng.integers(0, len(ratios), (RESAMPLES, len(ratios)))
        boot += weight * np.log(np.median(ratios[picks], axis=1))
        total += weight * float(np.log(np.median(ratios)))
        weight_sum += weight
    tail = (1 - level) / 2
    low, high = np.quantile(boot / weight_sum, [tail, 1 - tail])
    return Interval(float(np.exp(low)), float(np.exp(total / weight_sum)), float(np.exp(high)))
