"""The times of a run's session: raw samples, medians and ratios of every side, with bootstrap intervals.

All figures come from the samples of one session. Intervals are computed by `sandbox/judge/timing/bootstrap.py`, or
taken from the run's summary if they are there.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pgo_agent.agent.run.record.baseline import Work
from pgo_agent.agent.run.record.run import Run
from pgo_agent.agent.run.record.run_summary import MeasuredRun
from pgo_agent.agent.run.shipped_configurations import AUTOTUNED
from pgo_agent.sandbox import devices
from pgo_agent.sandbox.gate.coverage import PUBLIC
from pgo_agent.sandbox.judge.timing import bootstrap
from pgo_agent.sandbox.judge.timing.bootstrap import Interval

SHIPPED, TUNED, WINNER, AGAIN = "shipped", "tuned", "winner", "A/A"
BASES = (TUNED, SHIPPED, AUTOTUNED)
OWN = (WINNER, *BASES)
Times = Mapping[str, Mapping[str, Sequence[float]]]  # case -> side -> ms
LABELS = {SHIPPED: "as shipped", AGAIN: "as shipped, again", AUTOTUNED: "as autotuned"}
BASELINES = (TUNED, LABELS[SHIPPED], LABELS[AUTOTUNED])  # as `Ratio.of` calls them


@dataclass(frozen=True)
class SideTimes:
    """One side of one case."""

    key: str  # in the record: winner, a baseline, A/A, or a library's name
    choice: str  # its configuration; empty for a library
    ms: tuple[float, ...]  # in the order of the rounds
    median: Interval  # ms
    rate: float

    @property
    def label(self) -> str:
        return LABELS.get(self.key, self.key)


@dataclass(frozen=True)
class Ratio:
    """How many times faster the subject was than something."""

    of: str  # as `SideTimes.label`
    interval: Interval
    cases: int  # number of cases that it covers


@dataclass(frozen=True)
class Case:
    name: str
    unit: str  # of rates
    sides: tuple[SideTimes, ...]  # the subject first, then baselines, then libraries, then A/A
    ratios: tuple[Ratio, ...]
    noise: Interval | None  # what the kernel as shipped seems to gain over itself

    def side(self, key: str) -> SideTimes | None:
        return next((s for s in self.sides if s.key == key), None)


@dataclass(frozen=True)
class Session:
    subject: str  # `winner`; without a winner `tuned`
    last: bool  # whether it is the run's last session
    gains: tuple[Ratio, ...]  # of the subject: geometric means over the cases; baselines first, then libraries
    cases: tuple[Case, ...]
    rounds: int
    noise: Interval | None  # geometric mean over the cases
    weights: Mapping[str, float]  # of cases; empty: all count alike


def session(run: Run, evidence: Mapping[str, Any], against: str | None) -> Session | None:
    """Return the last session of a run; if it was not reached, the confirmation of the candidate accepted last.

    `evidence`: that candidate's, `against`: what it was measured against. None when nothing was measured. Raises
    KeyError, TypeError, ValueError for evidence that no session wrote.
    """
    summary = run.summary if isinstance(run.summary, MeasuredRun) else None
    times: Times = summary.times if summary else {}
    last = bool(times)
    times = times or _second_look(evidence, against)
    if not times:
        return None
    subject = WINNER if all(WINNER in sides for sides in times.values()) else TUNED
    weights = (run.baseline and run.baseline.weights) or {}
    return Session(
        subject,
        last,
        tuple(_gains(times, subject, weights, summary.against if summary else {})),
        tuple(_case(run, name, sides, subject) for name, sides in times.items()),
        max(len(ms) for sides in times.values() for ms in sides.values()),
        _geomean(times, SHIPPED, AGAIN, weights),
        {short(c): float(w) for c, w in weights.items()},
    )


def _second_look(evidence: Mapping[str, Any], against: str | None) -> Times:
    """Return its samples under a last session's names. The incumbent's second side is A/A only if it was as shipped."""
    looks = [b.get("again") for b in evidence.values() if isinstance(b, dict)]
    times: Times = next((x["time"] for x in looks if x and x.get("time")), {})
    times = times or evidence.get("samples", {}).get("time", {})
    names = {SHIPPED: SHIPPED, TUNED: TUNED, "candidate": WINNER} | ({AGAIN: AGAIN} if against == SHIPPED else {})
    return {c: {names[n]: ms for n, ms in sides.items() if n in names} for c, sides in times.items()}


def short(case: str) -> str:
    """Return a case's name for people; a held-out case stays marked."""
    return case.removeprefix(PUBLIC).removeprefix("SMALL/")


def interval(bounds: Sequence[float]) -> Interval:
    """Return the interval that the record stores as three numbers."""
    low, mid, high = (float(x) for x in bounds)
    return Interval(low, mid, high)


def others(names: Sequence[str], subject: str) -> list[str]:
    """Return what the subject is compared with: baselines, then libraries by name."""
    baselines = [n for n in OWN if n in names and n != subject]
    return baselines + sorted(set(names) - {*OWN, AGAIN})


def _gains(
    times: Mapping[str, Mapping[str, Sequence[float]]],
    subject: str,
    weights: Mapping[str, float],
    recorded: Mapping[str, Sequence[float]],
) -> Iterator[Ratio]:
    names = list(dict.fromkeys(n for sides in times.values() for n in sides))
    for other in others(names, subject):
        ratio = interval(recorded[other]) if other in recorded else _geomean(times, other, subject, weights)
        if ratio:
            yield Ratio(LABELS.get(other, other), ratio, sum(other in sides for sides in times.values()))


def _geomean(
    times: Mapping[str, Mapping[str, Sequence[float]]], base: str, other: str, weights: Mapping[str, float]
) -> Interval | None:
    """Return the geometric mean of ratios over the cases that have both sides; None without any."""
    pairs = {c: (s[base], s[other]) for c, s in times.items() if base in s and other in s}
    return bootstrap.geomean(pairs, weights) if pairs else None


def _case(run: Run, case: str, times: Mapping[str, Sequence[float]], subject: str) -> Case:
    if run.baseline is None:
        raise ValueError(f"run {run.id} timed {case} without a baseline")
    work = run.baseline.work_of(case)
    _, unit = devices.find(run.device).rate(work.flops, work.bytes, 1.0)
    listed = [subject, *others(list(times), subject), *([AGAIN] if AGAIN in times else [])]
    ratios = (
        Ratio(LABELS.get(n, n), bootstrap.ratio(times[n], times[subject]), 1) for n in others(list(times), subject)
    )
    both = SHIPPED in times and AGAIN in times
    return Case(
        case.split("/", 1)[1],
        unit,
        tuple(_side(run, case, n, times[n], work) for n in listed),
        tuple(ratios),
        bootstrap.ratio(times[SHIPPED], times[AGAIN]) if both else None,
    )


def _side(run: Run, case: str, key: str, ms: Sequence[float], work: Work) -> SideTimes:
    middle = bootstrap.ratio(ms, [1.0] * len(ms))  # the interval of their median
    rate, _ = devices.find(run.device).rate(work.flops, work.bytes, middle.mid)
    return SideTimes(key, _choice(run, case, key), tuple(float(x) for x in ms), middle, rate)


def _choice(run: Run, case: str, key: str) -> str:
    name = SHIPPED if key == AGAIN else key
    if isinstance(run.summary, MeasuredRun):
        plans = run.summary.sides.get(str(run.summary.winner) if key == WINNER else name, {})
        return plans[case].choice if case in plans else ""
    best = run.baseline.best(name) if run.baseline and name in BASES else {}
    return best[case].choice if case in best else ""
