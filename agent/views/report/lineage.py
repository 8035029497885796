"""Every candidate of a run with what it came to, and those that led to the winner, each with why it was tried."""

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
    """What one stage of the gate said."""

    name: str
    said: str
    seconds: float
    reason: str


@dataclass(frozen=True)
class Tried:
    """A candidate."""

    id: str
    generation: int
    kind: str
    move: str
    on: str  # what it is made of: a move with the beginning of an id, or `as shipped`
    against: str  # what it was measured against, likewise; empty where it was not
    author: str
    rationale: str
    because: str  # the bottleneck that led to it; empty where none did
    verdict: str  # or NOT_JUDGED
    stage: str
    reason: str
    ratio: float | None  # how many times faster than its incumbent it ran
    gain: Interval | None  # the same with its interval, where one was recorded
    cases: Mapping[str, float]  # case -> ratio, by the last stage that timed it
    stages: tuple[Stage, ...]
    seconds: float | None


@dataclass(frozen=True)
class Step:
    """An accepted candidate on the way to the winner."""

    tried: Tried
    before: Mapping[str, str]  # case -> what the profile said of what it was measured against, first of all
    changed: Mapping[str, tuple[str, ...]]  # case -> what its own profile says that changed


def tried(store: Store, run: Run, take: Callable[[str, Callable[[], Tried], Tried], Tried]) -> tuple[Tried, ...]:
    """In the order of proposal. `take`: gives what is gathered, or without the evidence where that cannot be read."""
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
    known = {incumbent.SHIPPED: "as shipped", **names}
    bodies = [b for b in evidence.values() if isinstance(b, dict)]
    return Tried(
        c.id,
        c.generation,
        c.kind,
        c.move,
        known.get(c.parent, c.parent),
        known.get(c.against, c.against) if c.against else "",
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
    """The interval of the very ratio that was recorded: of the second look where there was one."""
    told = [x.get("speedup") for b in bodies for x in (b.get("again") or {}, b)]
    found = (interval(x) for x in told if x and speedup is not None)
    return next((i for i in found if math.isclose(i.mid, speedup or 0.0, rel_tol=1e-6)), None)


def _stage(s: Mapping[str, Any]) -> Stage:
    return Stage(str(s["stage"]), str(s["verdict"]), float(s["seconds"]), str(s["reason"]))


def chosen(store: Store, run: Run) -> Candidate | None:
    """What the report is about: the winner, or what was accepted last when the run ended before; None without one."""
    measured = run.summary if isinstance(run.summary, MeasuredRun) else None
    winner = (measured and measured.winner) or incumbent.among(store.candidates(run.id))
    return None if winner == incumbent.SHIPPED else store.candidate(run.id, winner)


def steps(store: Store, run: Run, all_tried: Iterable[Tried]) -> tuple[Step, ...]:
    """From the kernel as shipped to the winner."""
    known, found = {t.id: t for t in all_tried}, list[Step]()
    winner = chosen(store, run)
    while winner is not None and winner.id in known:
        found.append(Step(known.pop(winner.id), said(store, run, winner.against), _changed(store, run, winner.id)))
        before = winner.against
        winner = store.candidate(run.id, before) if before in known else None
    return tuple(reversed(found))


def said(store: Store, run: Run, which: str | None) -> dict[str, str]:
    """Case -> what the profile of a candidate, or of `shipped`, said in short."""
    kept = profiles.of(store, run.id, which) if which else []
    return {short(k.case): k.summary.text for k in kept if k.summary is not None}


def _changed(store: Store, run: Run, which: str) -> dict[str, tuple[str, ...]]:
    kept = profiles.of(store, run.id, which)
    return {short(k.case): k.summary.changed for k in kept if k.summary is not None and k.summary.changed}
