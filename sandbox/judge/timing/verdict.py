"""From samples to a verdict on time: accepted, slower, undecided, or faster than the hardware. Pure arithmetic.

`slower` says that the gain is surely below what counts as one; `undecided` that the samples do not tell. What counts is
the larger of a fixed floor and what the incumbent seems to gain over itself in the same session (A/A). Samples may be
looked at several times while more are taken: every look but the last then has to be surer (Bonferroni, so that over all
looks the chance of a wrong word stays what it is for one).
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from pgo_agent.sandbox.gate.reason import Reason, of_case, plain, withheld
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.judge.timing import bootstrap

REGRESSION = 0.98  # no case may be surely slower than this
NOISE_FLOOR = 0.003  # a gain below it is not called one, however sure: A/A runs differ by as much
DRIFT = (
    0.1  # the incumbent's own time may move by as much within a lot: an H200's clock moved by 6 % as a session began
)
APART = 0.05  # and its two sides may differ by as much
Samples = Mapping[str, Mapping[str, Sequence[float]]]  # case -> side -> ms of each round


def on_time(
    times: Samples,
    floors: Mapping[str, float],
    base: str,
    weights: Mapping[str, float] | None,
    looks: int = 1,
) -> tuple[Verdict, Reason, dict[str, Any]]:
    """The verdict on the side `candidate` against `base`, with the side 'A/A', at one of so many looks.

    `floors`: ms that no kernel can beat; a floor that the incumbent itself beats is none.
    """
    level = 1 - (1 - bootstrap.LEVEL) / looks
    for case, sides in times.items():
        best = statistics.median(sides["candidate"])
        if best < floors[case] <= statistics.median(sides[base]):
            words = f": {best:.4f} ms is below the physical floor of {floors[case]:.4f} ms"
            return Verdict.CHEATING, of_case(case, text=case) + plain(words), {}
    gain = bootstrap.geomean({c: (s[base], s["candidate"]) for c, s in times.items()}, weights, level)
    noise = bootstrap.geomean({c: (s[base], s["A/A"]) for c, s in times.items()}, weights)
    cases = {c: bootstrap.ratio(s[base], s["candidate"], level) for c, s in times.items()}
    threshold = 1 + max(NOISE_FLOOR, abs(math.log(noise.mid)), math.log(noise.high) - math.log(noise.mid))
    found = {
        "speedup": gain.as_json(),
        "noise": noise.as_json(),
        "threshold": round(threshold, 6),
        "cases": {c: i.as_json() for c, i in cases.items()},
    }
    return *_verdict(gain, cases, threshold), found


def _verdict(
    gain: bootstrap.Interval, cases: Mapping[str, bootstrap.Interval], threshold: float
) -> tuple[Verdict, Reason]:
    worst = min(cases, key=lambda c: cases[c].mid)
    if cases[worst].high < REGRESSION:
        return Verdict.SLOWER, of_case(worst, text=worst) + plain(f" is {cases[worst].mid:.3f}x of the incumbent")
    ratio, over = f"{gain.mid:.3f}x [{gain.low:.3f}, {gain.high:.3f}]", withheld(f" above {threshold:.3f}", threshold)
    if gain.low > threshold:
        return Verdict.ACCEPTED, plain(f"{ratio} of the incumbent")
    if gain.high <= threshold:
        return Verdict.SLOWER, plain(f"{ratio} is not") + over
    return Verdict.UNDECIDED, plain(f"{ratio} of the incumbent: the samples do not tell whether it is") + over


def disturbed(lot: Samples, base: str) -> str:
    """What makes a lot of rounds useless: the incumbent's own time moved, or differs from itself. Empty: nothing."""
    for case, sides in lot.items():
        ms = sides[base]
        half = len(ms) // 2
        drift = statistics.median(ms[half:]) / statistics.median(ms[:half]) - 1
        if abs(drift) > DRIFT:
            return f"{case}: the incumbent's own time moved by {100 * drift:+.0f} % within {len(ms)} rounds"
        apart = statistics.median(sides["A/A"]) / statistics.median(ms) - 1
        if abs(apart) > APART:
            return f"{case}: the incumbent's time differed from itself by {100 * apart:+.0f} %"
    return ""


def alone(
    bursts: Samples, base: str, gain: float, weights: Mapping[str, float] | None, looks: int = 1
) -> tuple[str, bool, dict[str, Any]]:
    """Whether a gain that was seen side by side also shows when each side runs by itself; empty: at least half does.

    `bursts`: case -> side -> ms of each burst of launches of one side. A kernel that draws more power lowers the clock
    for what runs beside it, so that neither side's own time is what it is alone; their ratio has to be. Also gives
    whether that is sure at one of so many looks: one burst differs from the next by more than a small gain.
    """
    level = 1 - (1 - bootstrap.LEVEL) / looks
    found, half = (
        bootstrap.geomean({c: (s[base], s["candidate"]) for c, s in bursts.items()}, weights, level),
        gain**0.5,
    )
    shows, sure = found.mid >= half, not found.low < half <= found.high
    problem = "" if shows else f"{gain:.3f}x side by side, and {found.mid:.3f}x when each runs alone"
    return problem, sure, {"alone": found.as_json()}
