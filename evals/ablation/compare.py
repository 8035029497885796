"""Compares arms pair by pair: runs of one target and seed that differ in what the optimizer was shown.

The interval is a percentile bootstrap of the mean difference (Efron and Tibshirani, 1993), over 10,000 resamples with a
fixed seed. Each target weighs the same. Pairs are resampled within their target: three targets are no sample of all.
With the metric `best` targets are resampled first, and then pairs within each that was drawn (a hierarchical
bootstrap): what is said is of kernels like these.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from pgo_agent.evals.ablation.plan import BEST, AblationPlan, AblationRun, Arm

RESAMPLES = 10_000
LEVEL = 0.95
Means = NDArray[np.float64]
Resampled = Callable[[Sequence[Sequence[float]], Generator], Means]


@dataclass(frozen=True)
class Difference:
    """Of an arm's score and that of the arm it is compared with: the mean of targets' means, and its interval."""

    base: Arm
    arm: Arm
    low: float
    mid: float
    high: float
    targets: Mapping[str, float]  # mean difference of each
    pairs: int


def differences(
    plan: AblationPlan, scores: Mapping[AblationRun, float], commits: Mapping[AblationRun, str] | None = None
) -> list[Difference]:
    """Return a difference for each arm but the first of its model, where one pgo-agent made pairs of runs."""
    compared = ((base, arm, _paired(plan, scores, commits or {}, base, arm)) for base, arm in plan.comparisons)
    return [_difference(base, arm, by_target, _resampled(plan)) for base, arm, by_target in compared if by_target]


def between(
    plan: AblationPlan, earlier: Mapping[AblationRun, float], later: Mapping[AblationRun, float]
) -> list[Difference]:
    """Return the difference of each arm from itself in earlier scores, over the runs that both have."""
    by_arm: dict[Arm, dict[str, list[float]]] = {}
    for w in plan.runs:
        if w in earlier and w in later:
            by_arm.setdefault(w.arm, {}).setdefault(w.target, []).append(later[w] - earlier[w])
    return [_difference(arm, arm, by_target, _resampled(plan)) for arm, by_target in by_arm.items()]


def apart(plan: AblationPlan, scores: Mapping[AblationRun, float], commits: Mapping[AblationRun, str]) -> int:
    """Return how many pairs are left out because two versions of pgo-agent made their runs."""
    return sum(
        _of_two(commits, a, b) for arms in plan.comparisons for a, b in _pairs(plan, *arms) if {a, b} <= {*scores}
    )


def _resampled(plan: AblationPlan) -> Resampled:
    return _of_targets if plan.metric == BEST else _within_targets


def _pairs(plan: AblationPlan, base: Arm, arm: Arm) -> Iterator[tuple[AblationRun, AblationRun]]:
    for target in plan.targets:
        for seed in plan.seeds:
            yield AblationRun(target, seed, base), AblationRun(target, seed, arm)


def _of_two(commits: Mapping[AblationRun, str], a: AblationRun, b: AblationRun) -> bool:
    return commits.get(a) != commits.get(b)


def _paired(
    plan: AblationPlan, scores: Mapping[AblationRun, float], commits: Mapping[AblationRun, str], base: Arm, arm: Arm
) -> dict[str, list[float]]:
    """Target -> differences of its seeds."""
    by_target: dict[str, list[float]] = {}
    for a, b in _pairs(plan, base, arm):
        if {a, b} <= {*scores} and not _of_two(commits, a, b):
            by_target.setdefault(a.target, []).append(scores[b] - scores[a])
    return by_target


def _within_targets(by_target: Sequence[Sequence[float]], rng: Generator) -> Means:
    """Means of resamples: each target once, with a resample of its pairs."""
    drawn = [np.asarray(d)[rng.integers(0, len(d), (RESAMPLES, len(d)))].mean(axis=1) for d in by_target]
    means: Means = np.mean(drawn, axis=0)
    return means


def _of_targets(by_target: Sequence[Sequence[float]], rng: Generator) -> Means:
    """Means of resamples: as many targets as there are, each time one is drawn with another resample of its pairs."""
    count = len(by_target)
    places = [
        np.asarray(d)[rng.integers(0, len(d), (RESAMPLES, count, len(d)))].mean(axis=2) for d in by_target
    ]  # target -> its mean in each place of each resample
    chosen = rng.integers(0, count, (RESAMPLES, count))
    means: Means = np.take_along_axis(np.stack(places), chosen[None], axis=0)[0].mean(axis=1)
    return means


def _difference(base: Arm, arm: Arm, by_target: Mapping[str, Sequence[float]], resampled: Resampled) -> Difference:
    rng = np.random.default_rng(20261122)
    means = {t: float(np.mean(d)) for t, d in by_target.items()}
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(resampled(list(by_target.values()), rng), [tail, 1 - tail])
    count = sum(map(len, by_target.values()))
    return Difference(base, arm, float(low), float(np.mean(list(means.values()))), float(high), means, count)
