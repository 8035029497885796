"""From samples to a verdict on time: accepted, slower, undecided, or faster than the hardware. Pure arithmetic.

`slower` says that the gain is surely below what counts as one; `undecided` that the samples do not tell. What counts is
the larger of a fixed floor and what the incumbent seems to gain over itself in the same session (A/A).
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.judge import stats

REGRESSION = 0.98  # no case may be surely slower than this
NOISE_FLOOR = 0.003  # a gain below it is not called one, however sure: A/A runs differ by as much
Samples = Mapping[str, Mapping[str, Sequence[float]]]  # case -> side -> ms of each round


def on_time(
    times: Samples, floors: Mapping[str, float], base: str, weights: Mapping[str, float] | None
) -> tuple[Verdict, str, dict[str, Any]]:
    """The verdict on the side `candidate` against `base`, with the side 'A/A'. `floors`: ms that no kernel can beat."""
    for case, sides in times.items():
        best = statistics.median(sides["candidate"])
        if best < floors[case]:
            reason = f"{case}: {best:.4f} ms is below the physical floor of {floors[case]:.4f} ms"
            return Verdict.CHEATING, reason, {}
    gain = stats.geomean({c: (s[base], s["candidate"]) for c, s in times.items()}, weights)
    noise = stats.geomean({c: (s[base], s["A/A"]) for c, s in times.items()}, weights)
    cases = {c: stats.ratio(s[base], s["candidate"]) for c, s in times.items()}
    threshold = 1 + max(NOISE_FLOOR, abs(math.log(noise.mid)), math.log(noise.high) - math.log(noise.mid))
    found = {
        "speedup": gain.as_json(),
        "noise": noise.as_json(),
        "threshold": round(threshold, 6),
        "cases": {c: i.as_json() for c, i in cases.items()},
    }
    return *_verdict(gain, cases, threshold), found


def _verdict(gain: stats.Interval, cases: Mapping[str, stats.Interval], threshold: float) -> tuple[Verdict, str]:
    worst = min(cases, key=lambda c: cases[c].mid)
    if cases[worst].high < REGRESSION:
        return Verdict.SLOWER, f"{worst} is {cases[worst].mid:.3f}x of the incumbent"
    said = f"{gain.mid:.3f}x [{gain.low:.3f}, {gain.high:.3f}]"
    if gain.low > threshold:
        return Verdict.ACCEPTED, f"{said} of the incumbent"
    if gain.high <= threshold:
        return Verdict.SLOWER, f"{said} is not above {threshold:.3f}"
    return Verdict.UNDECIDED, f"{said} of the incumbent: the samples do not tell whether it is above {threshold:.3f}"
