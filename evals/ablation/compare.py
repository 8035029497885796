"""Compares arms pair by pair: runs of one target and seed that differ in what the optimizer was shown.

The interval is a percentile bootstrap of the mean difference (Efron and Tibshirani, 1993), over 10,000 resamples with a
fixed seed. Pairs are resampled within their target, each target weighs the same: three targets are no sample of all.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pgo_agent.evals.ablation.plan import AblationPlan, AblationRun, Arm

RESAMPLES = 10_000
LEVEL = 0.95


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
    return [_difference(base, arm, by_target) for base, arm, by_target in compared if by_target]


def apart(plan: AblationPlan, scores: Mapping[AblationRun, float], commits: Mapping[AblationRun, str]) -> int:
    """Return how many pairs are left out because two versions of pgo-agent made their runs."""
    return sum(
        _of_two(commits, a, b) for arms in plan.comparisons for a, b in _pairs(plan, *arms) if {a, b} <= {*scores}
    )


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


def _difference(base: Arm, arm: Arm, by_target: Mapping[str, Sequence[float]]) -> Difference:
    rng = np.random.default_rng(20261122)
    means = {t: float(np.mean(d)) for t, d in by_target.items()}
    resampled = [np.asarray(d)[rng.integers(0, len(d), (RESAMPLES, len(d)))].mean(axis=1) for d in by_target.values()]
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(np.mean(resampled, axis=0), [tail, 1 - tail])
    count = sum(map(len, by_target.values()))
    return Difference(base, arm, float(low), float(np.mean(list(means.values()))), float(high), means, count)
