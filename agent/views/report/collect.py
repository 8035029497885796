"""Gathers a run's report, part by part. A part that cannot be read is left out, and the report says so.

A run may have died half-way, have measured nothing, or be of another version; each part works without the others.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from pgo_agent.agent import text
from pgo_agent.agent.exit_codes import FAULTY
from pgo_agent.agent.run import incumbent, shipped_configurations
from pgo_agent.agent.run.record import user_requests
from pgo_agent.agent.run.record.baseline import Unfit
from pgo_agent.agent.run.record.candidate import Candidate
from pgo_agent.agent.run.record.run import Run
from pgo_agent.agent.run.record.run_summary import MeasuredRun, RankedCandidate, RankedRun
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.views import summary as display
from pgo_agent.agent.views.report import comparison as compared
from pgo_agent.agent.views.report import correctness, lineage, profiles, reproduce, timings
from pgo_agent.agent.views.report.comparison import Comparison
from pgo_agent.agent.views.report.correctness import Proof
from pgo_agent.agent.views.report.lineage import Step, Tried
from pgo_agent.agent.views.report.profiles import Profiled
from pgo_agent.agent.views.report.timings import Ratio, Session
from pgo_agent.sandbox import devices
from pgo_agent.sandbox.errors import Fault
from pgo_agent.sandbox.judge.timing.bootstrap import Interval

T = TypeVar("T")
STATES = {
    "done": "complete",
    "none_found": "complete",
    "budget": "its budget was spent before anything was judged",
    "running": "not complete: it is still running, or was killed",
    "interrupted": "not complete: it was interrupted",
    "waiting": "not complete: it waits for an answer",
    "failed": "it failed",
}
SURE = 0.95  # confidence of intervals
ASKED = 400  # characters of a request that are shown


@dataclass(frozen=True)
class Report:
    run: Run
    target: str
    device: str
    outcome: str  # gained, none, unmeasured, unfinished or failed
    title: str
    sentences: tuple[str, ...]
    gains: tuple[Ratio, ...]  # of the session
    session: Session | None
    tried: tuple[Tried, ...]
    winner: Tried | None
    steps: tuple[Step, ...]  # from as shipped to the winner
    shipped_profile: Mapping[str, str]  # case -> summary of the profile of the kernel as shipped
    comparison: Comparison | None
    profiles: tuple[Profiled, ...]
    proofs: tuple[Proof, ...]
    ranking: tuple[RankedCandidate, ...]
    skipped: tuple[tuple[str, str], ...]  # moves that did not apply, and why
    asked: tuple[tuple[str, str], ...]  # a person's requests while it ran, and their outcomes
    environment: tuple[tuple[str, str], ...]
    commands: tuple[tuple[str, str], ...]
    unfit: tuple[Unfit, ...]  # of the file's own configurations
    absent: tuple[str, ...]  # what is missing, and why

    @property
    def state(self) -> str:
        return STATES.get(self.run.state, self.run.state)


class _Parts:
    """Gathers parts, and remembers which could not be read."""

    def __init__(self) -> None:
        self.absent: list[str] = []

    def take(self, name: str, gather: Callable[[], T], otherwise: T) -> T:
        """Return a part, or `otherwise` when it cannot be read: a damaged part may raise anything."""
        try:
            return gather()
        except Fault as e:
            self.absent.append(f"{name}: {e.message}")
        except Exception as e:
            error = f"{type(e).__name__}: {e}"
            self.absent.append(f"{name}: the record of it is damaged, or of another version of pgo-agent ({error})")
        return otherwise


def report(store: Store, name: str) -> Report:
    """Gather the report of a run. Raises UsageFault for a run that does not exist."""
    run, parts = store.run(name), _Parts()
    no_candidates: tuple[Tried, ...] = ()
    all_tried = parts.take("candidates", lambda: lineage.tried(store, run, parts.take), no_candidates)
    chosen = parts.take("winner", lambda: lineage.chosen(store, run), None)
    winner = next((t for t in all_tried if chosen is not None and t.id == chosen.id), None)
    session = parts.take("timing", lambda: _session(store, run, chosen), None)
    gains = session.gains if session else ()
    outcome, error = _outcome(run, session, chosen), parts.take("error", lambda: run.error, "")
    device = parts.take("device", lambda: devices.find(run.device).name, run.device)
    lost = parts.take("what the autotuner picks", lambda: _lost(run), "")
    unproved: tuple[Proof, ...] = ()
    proofs = parts.take("evidence", lambda: _proofs(store, run, winner, all_tried), unproved)
    gathered = Report(
        run,
        Path(run.target).stem,
        device,
        outcome,
        _title(run, outcome, gains, lost, all_tried),
        tuple(_sentences(run, device, outcome, error, gains, session, lost, proofs)),
        gains,
        session,
        all_tried,
        winner,
        parts.take("steps", lambda: lineage.steps(store, run, all_tried), ()),
        parts.take("profile of the kernel as shipped", lambda: lineage.summaries(store, run, incumbent.SHIPPED), {}),
        parts.take("builds", lambda: compared.comparison(store, run, chosen), None) if chosen else None,
        parts.take("profiles", lambda: profiles.profiles(store, run, chosen.id if chosen else None), ()),
        proofs,
        parts.take("ranking", lambda: run.summary.ranking if isinstance(run.summary, RankedRun) else (), ()),
        parts.take("moves that did not apply", lambda: tuple(_skipped(store, run)), ()),
        parts.take("what a person asked of it", lambda: tuple(_asked(store, run, outcome)), ()),
        parts.take("environment", lambda: tuple(reproduce.environment(run)), ()),
        parts.take(
            "commands", lambda: tuple(reproduce.commands(run, chosen, bool(user_requests.of(store, run.id)))), ()
        ),
        parts.take(
            "the file's own list", lambda: tuple(u for u in (run.baseline.unfit if run.baseline else ()) if u.why), ()
        ),
        (),
    )
    uncompiled = parts.take("torch.compile of the reference", lambda: display.uncompiled(run.summary), list[str]())
    libraries = parts.take("libraries", lambda: display.of_libraries(run.summary), list[str]())
    absent = dict.fromkeys([*_lacking(gathered), *uncompiled, *libraries, *parts.absent])
    return replace(gathered, absent=tuple(absent))


def _outcome(run: Run, session: Session | None, chosen: Candidate | None) -> str:
    if run.state == "failed":
        return "failed"
    if run.summary_json is None:
        return "unfinished"
    if session is None:
        return "unmeasured"
    return "gained" if chosen is not None else "none"


# the headline ---------------------------------------------------------------------------------------------------------


def _title(run: Run, outcome: str, gains: tuple[Ratio, ...], lost: str, tried: tuple[Tried, ...]) -> str:
    if run.facts.given and tried:
        judged, against = tried[0].verdict != lineage.NOT_JUDGED, run.facts.against
        said = display.meaning(tried[0].verdict, against=against) if judged else "was not judged"
        return f"{reproduce.given(run)} {said}"
    baselines = [g for g in gains if g.of in timings.BASELINES]
    if lost:
        return "nothing was gained against what triton.autotune picks today"
    if outcome == "gained":
        return ", ".join(f"{g.interval.mid:.3f}x of {g.of}" for g in baselines)
    if outcome == "none":
        return "no candidate was faster than the kernel beyond the noise"
    if outcome == "unmeasured":
        return "nothing was measured"
    if outcome == "failed":
        return "the run failed"
    return (
        f"not complete; at its last look {baselines[0].interval.mid:.3f}x of {baselines[0].of}"
        if baselines
        else "not complete"
    )


def _sentences(
    run: Run,
    device: str,
    outcome: str,
    error: str,
    gains: tuple[Ratio, ...],
    session: Session | None,
    lost: str,
    proofs: tuple[Proof, ...],
) -> list[str]:
    if outcome == "failed":
        return [error or "It does not say why."]
    if outcome == "unmeasured":
        where = f"There was no GPU: kernels were compiled for {device} and checked in Triton's interpreter."
        why = STATES["budget"].capitalize() + "." if run.state == "budget" else where
        return [why, *_covers(proofs), "No figure in here is a time of this run."]
    sentences = [*([lost] if lost else []), *(_against(g) for g in gains)]
    if session and not session.last:
        sentences.append("The second look at what was accepted last: the last session was not reached.")
    if session:
        sentences.append(_how(session, run))
    if outcome == "unfinished":
        sentences.append(f"The run is {STATES.get(run.state, run.state)}.")
    return sentences


def _covers(proofs: tuple[Proof, ...]) -> list[str]:
    """Return what was checked of the candidates, one sentence for all with the same coverage."""
    alike = Counter(p.covered for p in proofs if p.covered)
    return [f"Checked of {n} {'candidate' if n == 1 else 'candidates'}: {coverage}." for coverage, n in alike.items()]


def _against(g: Ratio) -> str:
    i = g.interval
    outcome = "faster" if i.low > 1 else "slower" if i.high < 1 else "not told apart"
    on = f"geometric mean of {g.cases} cases" if g.cases > 1 else "1 case"
    return f"{times(i)} of {g.of}: {outcome} ({on})."


def times(i: Interval) -> str:
    """Format a ratio with its interval."""
    return display.interval((i.low, i.mid, i.high))


def _how(s: Session, run: Run) -> str:
    gpu = run.environment.gpu if run.environment else "a GPU"
    weights = ", ".join(f"{c} {w:g}" for c, w in s.weights.items())
    weighed = f"; cases are weighted: {weights}" if weights else ""
    noise = f"; as shipped against itself: {times(s.noise)}" if s.noise else ""
    return (
        f"One session on {gpu}: {s.rounds} rounds of every side in turns, caches flushed before each launch; "
        f"{SURE:.0%} bootstrap intervals{noise}{weighed}."
    )


# the rest -------------------------------------------------------------------------------------------------------------


def _session(store: Store, run: Run, chosen: Candidate | None) -> Session | None:
    evidence = store.evidence(run.id, chosen.id) if chosen else {}
    return timings.session(run, evidence, chosen.against if chosen else None)


def _proofs(store: Store, run: Run, winner: Tried | None, tried: tuple[Tried, ...]) -> tuple[Proof, ...]:
    """Return the winner's proof; without a winner, those of all candidates that were compared and are not faulty."""
    subjects = (winner,) if winner else tuple(t for t in tried if t.verdict not in FAULTY)
    proofs = (correctness.proof(t, store.evidence(run.id, t.id)) for t in subjects)
    return tuple(p for p in proofs if winner or p.comparisons or p.covered)


def _lost(run: Run) -> str:
    return shipped_configurations.lost(run.summary) if isinstance(run.summary, MeasuredRun) else ""


def _skipped(store: Store, run: Run) -> list[tuple[str, str]]:
    """Return each move with its reasons, each pair once."""
    return list(dict.fromkeys((move, reason) for _, move, reason in store.skipped(run.id)))


def _asked(store: Store, run: Run, outcome: str) -> Iterator[tuple[str, str]]:
    untaken = "not taken yet" if outcome == "unfinished" else "nothing came of it: the run did not get to it"
    for s in user_requests.of(store, run.id):
        yield text.line(s.asked, ASKED), s.outcome or untaken


def _lacking(r: Report) -> list[str]:
    """Return what was not recorded, in the order of the report."""
    missing = []
    if r.session is None:
        missing.append(
            f"times: {'there was no GPU' if r.outcome == 'unmeasured' else 'the last session was not reached'}"
        )
    elif not r.session.last:
        missing.append("times of libraries, and those of all sides together: the last session was not reached")
    if not r.tried:
        missing.append("candidates: none was proposed")
    if waiting := sum(t.verdict == lineage.NOT_JUDGED for t in r.tried):
        missing.append(f"verdicts: {waiting} of {len(r.tried)} candidates were not judged")
    if r.winner is None and r.tried:
        missing.append("a comparison of builds: no candidate was accepted")
    reasons: dict[str, list[str]] = {}  # why -> cases
    for case in r.profiles:
        for why in case.reasons:
            reasons.setdefault(why, []).append(case.case)
    return missing + [f"profile of {', '.join(cases)}, {why}" for why, cases in reasons.items()]
