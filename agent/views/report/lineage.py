"""Every candidate of a run with its result, and those that led to the winner, each with why it was tried."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pgo_agent.agent.proposal import bottlenecks
from pgo_agent.agent.run import incumbent
from pgo_agent.agent.run.record import profiles
from pgo_agent.agent.run.record.candidate import Candidate
from pgo_agent.agent.run.record.run import Run
from pgo_agent.agent.run.record.run_summary import MeasuredRun
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.views.report.timings import interval, short
from pgo_agent.sandbox.judge.timing.bootstrap import Interval

NOT_JUDGED = "not judged"


@dataclass(frozen=True)
class Stage:
    """The verdict of one stage of the gate."""

    name: str
    verdict: str
    seconds: float
    reason: str


@dataclass(frozen=True)
class Tried:
    """A candidate."""

    id: str
    generation: int
    kind: str
    move: str
    on: str  # its parent: a move with the beginning of an id, or `as shipped`
    against: str  # what it was measured against, likewise; empty when it was not
    author: str
    rationale: str
    because: str  # the bottleneck that led to it; empty if none did
    verdict: str  # or NOT_JUDGED
    stage: str
    reason: str
    ratio: float | None  # how many times faster than its incumbent it ran
    gain: Interval | None  # the same with its interval, if one was recorded
    cases: Mapping[str, float]  # case -> ratio, by the last stage that timed it
    stages: tuple[Stage, ...]
    seconds: float | None


@dataclass(frozen=True)
class Step:
    """An accepted candidate on the way to the winner."""

    tried: Tried
    before: Mapping[str, str]  # case -> summary of the profile of what it was measured against
    changed: Mapping[str, tuple[str, ...]]  # case -> changes that its own profile lists


def tried(store: Store, run: Run, take: Callable[[str, Callable[[], Tried], Tried], Tried]) -> tuple[Tried, ...]:
    """Return all candidates in the order of proposal. `take`: as `_Parts.take`, for evidence that cannot be read."""
    candidates = store.candidates(run.id)
    names = {c.id: f"{c.move} {c.id[:8]}" for c in candidates}
    return tuple(
        take(
            f"evidence of {c.id[:8]}",
            partial(_tried, c, store.evidence(run.id, c.id), names),
            _tried(replace(c, cites=None), {}, names),
        )
        for c in candidates
    )


def _tried(c: Candidate, evidence: Mapping[str, Any], names: Mapping[str, str]) -> Tried:
    labels = {incumbent.SHIPPED: "as shipped", **names}
    bodies = [b for b in evidence.values() if isinstance(b, dict)]
    return Tried(
        c.id,
        c.generation,
        c.kind,
        c.move,
        labels.get(c.parent, c.parent),
        labels.get(c.against, c.against) if c.against else "",
        c.author,
        c.rationale,
        bottlenecks.because(c.cites),
        c.verdict or NOT_JUDGED,
        c.stage or "",
        c.reason or "",
        c.speedup,
        _gain(c.speedup, bodies),
        {short(case): ratio for case, ratio in incumbent.gains(evidence).items()},
        tuple(_stage(s) for b in bodies for s in b.get("stages", ())),
        c.seconds,
    )


def _gain(speedup: float | None, bodies: Iterable[Mapping[str, Any]]) -> Interval | None:
    """Return the interval of the recorded ratio: of the confirmation if there was one."""
    recorded = [x.get("speedup") for b in bodies for x in (b.get("again") or {}, b)]
    intervals = (interval(x) for x in recorded if x and speedup is not None)
    return next((i for i in intervals if math.isclose(i.mid, speedup or 0.0, rel_tol=1e-6)), None)


def _stage(s: Mapping[str, Any]) -> Stage:
    return Stage(str(s["stage"]), str(s["verdict"]), float(s["seconds"]), str(s["reason"]))


def chosen(store: Store, run: Run) -> Candidate | None:
    """Return the winner, or the candidate accepted last when the run ended early; None without one."""
    measured = run.summary if isinstance(run.summary, MeasuredRun) else None
    winner = (measured and measured.winner) or incumbent.among(store.candidates(run.id))
    return None if winner == incumbent.SHIPPED else store.candidate(run.id, winner)


def steps(store: Store, run: Run, all_tried: Iterable[Tried]) -> tuple[Step, ...]:
    """Return the accepted candidates from the kernel as shipped to the winner."""
    by_id, path = {t.id: t for t in all_tried}, list[Step]()
    winner = chosen(store, run)
    while winner is not None and winner.id in by_id:
        path.append(Step(by_id.pop(winner.id), summaries(store, run, winner.against), _changed(store, run, winner.id)))
        before = winner.against
        winner = store.candidate(run.id, before) if before in by_id else None
    return tuple(reversed(path))


def summaries(store: Store, run: Run, which: str | None) -> dict[str, str]:
    """Return case -> the summary of the profile of a candidate, or of `shipped`."""
    stored = profiles.of(store, run.id, which) if which else []
    return {short(k.case): k.summary.text for k in stored if k.summary is not None}


def _changed(store: Store, run: Run, which: str) -> dict[str, tuple[str, ...]]:
    stored = profiles.of(store, run.id, which)
    return {short(k.case): k.summary.changed for k in stored if k.summary is not None and k.summary.changed}
