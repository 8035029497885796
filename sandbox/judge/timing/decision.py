"""From samples to a verdict on time: accepted, slower, undecided, or faster than the hardware. Pure arithmetic.

`slower`: the gain is surely below the threshold. `undecided`: the samples do not decide. The threshold is the larger of
a fixed floor and the incumbent's apparent gain over itself in the same session (A/A). Samples may be evaluated several
times while more are taken; every look then needs a higher level (Bonferroni: the chance of an error over all looks
stays that of one).
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TypedDict

from pgo_agent.sandbox.gate.reason import NONE, Reason, of_case, plain, withheld
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.judge.questions import PEAK_MARGIN
from pgo_agent.sandbox.judge.timing import bootstrap

REGRESSION = 0.98  # no case may be surely slower than this
NOISE_FLOOR = 0.003  # least gain that counts: A/A runs differ by as much
TIED = 0.01  # where it is asked whether it is slower, another configuration than the incumbent's must win by so much
DRIFT = 0.1  # limit of the incumbent's drift within a lot: an H200's clock moved by 6 % as a session began
APART = 0.05  # limit of the difference between its two sides


class Figures(TypedDict, total=False):
    """What the samples of all rounds say: intervals as three numbers."""

    speedup: list[float]
    noise: list[float]
    threshold: float
    cases: dict[str, list[float]]
    thresholds: dict[str, float]  # of `regression.py`: of each case, by its own noise
    slower: list[str]  # of `regression.py`: the cases that became slower, or ALL of them together


Samples = Mapping[str, Mapping[str, Sequence[float]]]  # case -> side -> ms of each round


def on_time(
    times: Samples,
    floors: Mapping[str, float],
    base: str,
    weights: Mapping[str, float] | None,
    looks: int = 1,
) -> tuple[Verdict, Reason, Figures]:
    """Return the verdict on the side `candidate` against `base`, with the side 'A/A', at one of `looks` looks.

    `floors`: least time in ms of each case; a floor that the incumbent itself beats is ignored.
    """
    if too_fast := faster_than_hardware(times, floors, base):
        return Verdict.CHEATING, too_fast, {}
    level = 1 - (1 - bootstrap.LEVEL) / looks
    gain = bootstrap.geomean({c: (s[base], s["candidate"]) for c, s in times.items()}, weights, level)
    noise = bootstrap.geomean({c: (s[base], s["A/A"]) for c, s in times.items()}, weights)
    cases = {c: bootstrap.ratio(s[base], s["candidate"], level) for c, s in times.items()}
    threshold = least_gain(noise)
    figures: Figures = {
        "speedup": gain.as_json(),
        "noise": noise.as_json(),
        "threshold": round(threshold, 6),
        "cases": {c: i.as_json() for c, i in cases.items()},
    }
    return *_verdict(gain, cases, threshold), figures


def faster_than_hardware(times: Samples, floors: Mapping[str, float], base: str) -> Reason:
    """Return in which case a candidate is below the physical floor, while the incumbent is surely not; false: in none.

    The floor rests on the work that the target says. An incumbent that is as fast as the measured peaks allow shows
    that the target says too much (bytes of rows that nobody reads, say), and then the floor proves nothing.
    """
    for case, sides in times.items():
        best = statistics.median(sides["candidate"])
        if best < floors[case] and statistics.median(sides[base]) >= floors[case] * PEAK_MARGIN:
            words = f": {best:.4f} ms is below the physical floor of {floors[case]:.4f} ms"
            return of_case(case, text=case) + plain(words)
    return NONE


def least_gain(noise: bootstrap.Interval) -> float:
    """Return the least ratio that counts, by the apparent gain of the incumbent over itself in the same session."""
    return 1 + max(NOISE_FLOOR, abs(math.log(noise.mid)), math.log(noise.high) - math.log(noise.mid))


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
    """Return why a lot is useless: the incumbent's time drifted, or its two sides differ. Empty: it is good."""
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
    bursts: Samples,
    base: str,
    gain: float,
    weights: Mapping[str, float] | None,
    looks: int = 1,
    least: float | None = None,
) -> tuple[str, bool, JsonObject]:
    """Check that at least half of a gain remains when each side runs alone. `least`: or that ratio.

    Returns the problem (empty: none), whether that is sure at one of `looks` looks, and the figures. `bursts`: case ->
    side -> ms of each burst of launches of one side. A kernel that draws more power lowers the clock for what runs
    beside it. Single bursts differ by more than a small gain.
    """
    level = 1 - (1 - bootstrap.LEVEL) / looks
    ratio_alone = bootstrap.geomean({c: (s[base], s["candidate"]) for c, s in bursts.items()}, weights, level)
    half = gain**0.5 if least is None else least
    shows, sure = ratio_alone.mid >= half, not ratio_alone.low < half <= ratio_alone.high
    problem = "" if shows else f"{gain:.3f}x side by side, and {ratio_alone.mid:.3f}x when each runs alone"
    return problem, sure, {"alone": ratio_alone.as_json()}
