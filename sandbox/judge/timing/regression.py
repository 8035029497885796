"""From samples to whether a kernel became slower: not slower, slower, or undecided. Pure arithmetic.

The question of a pull request. All cases together, and each by itself, are held against what the incumbent differs
from itself in the same session (A/A), as `decision.py` computes it. `slower`: a whole interval lies beyond that.
`not_slower`: no interval reaches beyond it; at the last look, where no more samples are taken, no middle does. Where
the incumbent itself differs by more than APART nothing is called so. The level of an interval allows for the looks and
for the number of cases.
"""

from collections.abc import Mapping

from pgo_agent.sandbox.gate.reason import Reason, joined, of_case, plain, withheld
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict
from pgo_agent.sandbox.judge.timing import bootstrap, decision
from pgo_agent.sandbox.judge.timing.bootstrap import Interval
from pgo_agent.sandbox.judge.timing.decision import Figures, Samples

ALL = "all cases"  # no case's name: those begin with their section


def on_time(
    times: Samples,
    floors: Mapping[str, float],
    base: str,
    weights: Mapping[str, float] | None,
    looks: int = 1,
    last: bool = True,
) -> tuple[Verdict, Reason, Figures]:
    """Return whether the side `candidate` is slower than `base`, with the side 'A/A', at one of `looks` looks."""
    if too_fast := decision.faster_than_hardware(times, floors, base):
        return Verdict.CHEATING, too_fast, {}
    asked = [ALL, *times] if len(times) > 1 else [ALL]
    level = 1 - (1 - bootstrap.LEVEL) / (looks * len(asked))
    gains = _ratios(times, base, "candidate", weights, level)
    noises = _ratios(times, base, "A/A", weights, bootstrap.LEVEL)
    thresholds = {n: decision.least_gain(i) for n, i in noises.items()}
    slower = [n for n in asked if gains[n].high < 1 / thresholds[n]]
    loud = [n for n in asked if thresholds[n] > 1 + decision.APART]
    low = {n: gains[n].mid if last else gains[n].low for n in asked}
    doubtful = [n for n in asked if low[n] < 1 / thresholds[n] or n in loud]
    figures: Figures = {
        "speedup": gains[ALL].as_json(),
        "noise": noises[ALL].as_json(),
        "threshold": round(thresholds[ALL], 6),
        "cases": {c: gains[c].as_json() for c in times},
        "thresholds": {c: round(thresholds[c], 6) for c in times},
        "slower": slower,
    }
    if slower:
        return Verdict.SLOWER, joined("; ", [_slower(n, gains[n]) for n in _worst_first(slower, gains)]), figures
    if doubtful:
        return Verdict.UNDECIDED, _doubt(_worst_first(doubtful, gains)[0], gains, thresholds), figures
    return Verdict.NOT_SLOWER, _no_slower(gains[ALL], thresholds[ALL]), figures


def agreed(first: Judgement, second: Judgement) -> tuple[Verdict, Reason]:
    """Return what two sessions in different processes come to: their verdict where they agree, and on the same case."""
    names = [set[object](_names(j)) for j in (first, second)]
    same = first.verdict == second.verdict and (first.verdict != Verdict.SLOWER or bool(names[0] & names[1]))
    if same:
        return second.verdict, first.why + plain("; in a second session ") + second.why
    said = [plain(str(j.verdict).replace("_", " ") + ": ") + j.why for j in (first, second)]
    return Verdict.UNDECIDED, plain("two sessions do not agree: ") + joined("; then ", said)


def slower_by(i: Interval) -> str:
    """Return a ratio below 1 as the time that is lost: `7.1 % [6.6, 7.5]`."""
    low, mid, high = (100 * (1 / x - 1) for x in (i.high, i.mid, i.low))
    return f"{mid:.1f} % [{low:.1f}, {high:.1f}]"


def _names(judged: Judgement) -> list[str]:
    found = judged.evidence.get("slower", [])
    return [str(n) for n in found] if isinstance(found, list) else []


def _ratios(
    times: Samples, base: str, other: str, weights: Mapping[str, float] | None, level: float
) -> dict[str, Interval]:
    """Return the ratios of two sides: of all cases together, then of each."""
    together = bootstrap.geomean({c: (s[base], s[other]) for c, s in times.items()}, weights, level)
    return {ALL: together} | {c: bootstrap.ratio(s[base], s[other], level) for c, s in times.items()}


def _worst_first(names: list[str], gains: Mapping[str, Interval]) -> list[str]:
    """Return all cases together first, if they are among these; then each, the slowest first."""
    return sorted(names, key=lambda n: (n != ALL, gains[n].mid))


def _slower(name: str, i: Interval) -> Reason:
    return _subject(name) + plain(f"slower by {slower_by(i)}")


def _subject(name: str) -> Reason:
    return plain("") if name == ALL else of_case(name, text=name) + plain(": ")


def _no_slower(i: Interval, threshold: float) -> Reason:
    faster = "faster: " if i.low > threshold else ""
    itself = withheld(f"; it differs from itself by up to {100 * (threshold - 1):.1f} %", threshold)
    return plain(f"{faster}{_figure(i)} of the incumbent") + itself


def _doubt(name: str, gains: Mapping[str, Interval], thresholds: Mapping[str, float]) -> Reason:
    words = f"{_figure(gains[name])} of the incumbent: the samples do not tell whether it is slower"
    return _subject(name) + plain(words) + withheld(f" by over {100 * (thresholds[name] - 1):.1f} %", thresholds[name])


def _figure(i: Interval) -> str:
    return f"{i.mid:.3f}x [{i.low:.3f}, {i.high:.3f}]"
