"""Mann and Whitney's U test of one lot of samples against another, one-sided, and Holm's correction for many of them.

Relies on scipy, an extra of its own: exact without ties up to `MOST_EXACT` pairs, else the normal approximation with
the corrections for ties and for continuity.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from pgo_agent.sandbox.errors import EnvironmentFault

MOST_EXACT = 2500  # pairs of samples up to which U is counted
Key = TypeVar("Key")


def larger(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the chance of samples of `second` this much larger than those of `first`, or more, if both have one
    source.

    Raises ValueError without samples, EnvironmentFault without scipy.
    """
    if not first or not second:
        raise ValueError("there is nothing to compare")
    try:
        from scipy.stats import mannwhitneyu
    except ImportError:
        raise EnvironmentFault("comparing needs scipy, which is not installed", "pip install 'scipy>=1.11'") from None
    tied = len({*first, *second}) < len(first) + len(second)
    method = "asymptotic" if tied or len(first) * len(second) > MOST_EXACT else "exact"
    return float(mannwhitneyu(second, first, alternative="greater", method=method).pvalue)


def holm(chances: Mapping[Key, float]) -> dict[Key, float]:
    """Correct chances so that any false alarm among all of them is as rare as each alone (Holm, 1979)."""
    most, corrected = 0.0, dict[Key, float]()
    for n, key in enumerate(sorted(chances, key=lambda k: chances[k])):
        most = max(most, min(1.0, chances[key] * (len(chances) - n)))
        corrected[key] = most
    return corrected
