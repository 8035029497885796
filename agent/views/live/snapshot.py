"""A run at a glance: what its record says now, as plain values for the live block.

It reads the record alone, so it also works for a run that another process works on. It draws nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pgo_agent.agent import text
from pgo_agent.agent.proposal import bottlenecks
from pgo_agent.agent.run import incumbent, steering
from pgo_agent.agent.run.record import pending, profiles, shipped_results, user_requests
from pgo_agent.agent.run.record.candidate import USER, Candidate
from pgo_agent.agent.run.record.profiles import StoredProfile
from pgo_agent.agent.run.record.run import Run
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.agent.views import model_usage, summary
from pgo_agent.sandbox import devices, json_codec

TIMELINE = "timeline"


@dataclass(frozen=True)
class Row:
    """A candidate."""

    id: str
    generation: int
    by: str
    move: str
    verdict: str  # or its progress: proposed, built, looked at, measured
    ratio: str  # of its incumbent's time, as measured here; in brackets: recorded earlier; empty: unknown
    reason: str
    counted: bool = True  # by the budget: what somebody submitted is not


@dataclass(frozen=True)
class Snapshot:
    run: str
    target: str
    device: str
    measured: bool  # whether a GPU measures this run
    state: str
    settings: RunSettings
    seconds: float
    spent: Mapping[str, float]  # of the other budgets, by name
    generation: int
    rows: Sequence[Row]
    incumbent: str
    best: str  # of the incumbent, against both baselines; and what is pinned
    profile: str  # what holds the incumbent back
    asked: int  # requests of a person that the loop did not read yet
    timeline: str  # why there is none; empty: there is one, or it is not known yet

    @property
    def counted(self) -> int:
        """Return the number of candidates that the budget counts."""
        return sum(r.counted for r in self.rows)


def take(store: Store, name: str) -> Snapshot:
    """Read a run's snapshot. Raises UsageFault when there is no such run, EnvironmentFault for the disk."""
    run, candidates = store.run(name), store.candidates(name)
    device = devices.find(run.device).name
    current, pin = incumbent.among(candidates), steering.pin_of(store, run.id)
    stored, waiting = profiles.of(store, run.id, current), pending.progress(store, run.id)
    environment = run.baseline and run.baseline.environment
    return Snapshot(
        run=run.id,
        target=summary.near(run.target),
        device=device,
        measured=bool(environment),
        state=run.state,
        settings=run.settings,
        seconds=run.seconds,
        spent=model_usage.spent(store, run),
        generation=max((c.generation for c in candidates), default=0),
        rows=[_row(c, device, waiting.get(c.id)) for c in candidates],
        incumbent=current,
        best=_best(store, run, current) + (f"; pinned: {pin[:8]}" if pin else ""),
        profile=_profile(stored),
        asked=len(user_requests.waiting(store, run.id)),
        timeline=next((k.passes[TIMELINE] for k in stored if k.passes.get(TIMELINE)), ""),
    )


def _row(c: Candidate, device: str, waiting: tuple[str, float] | None) -> Row:
    recorded, speedup = shipped_results.judged(c.source, device), c.speedup or (waiting and waiting[1])
    ratio = f"{speedup:.3f}x" if speedup else f"[{recorded[1]:.3f}x]" if recorded and recorded[1] else ""
    verdict = c.verdict or (waiting[0] if waiting else "built" if c.built is not None else "proposed")
    by, move, reason = (text.line(x) for x in (c.by, c.move, c.reason or ""))
    return Row(c.id, c.generation, by, move, verdict, ratio, reason, c.proposer != USER)


def _best(store: Store, run: Run, current: str) -> str:
    if run.baseline is None:
        return "the baselines do not stand yet"
    if not run.baseline.environment:
        return "nothing is measured without a GPU"
    if current == incumbent.SHIPPED:
        return "the kernel as shipped: nothing was accepted yet"
    comparisons = (b["against"] for b in store.evidence(run.id, current).values() if "against" in b)
    against = json_codec.from_json(dict[str, tuple[float, ...]], next(comparisons, {}))
    names = {"shipped": "as shipped", "tuned": "tuned"}
    ratios = [f"{summary.interval(x)} of {names[n]}" for n, x in against.items() if n in names]
    return f"{current[:8]}: {', '.join(ratios) or 'accepted'}"


def _profile(stored: Sequence[StoredProfile]) -> str:
    """Describe the profile of a case with a bottleneck, or of any case."""
    ordered = sorted(stored, key=lambda k: not (k.summary and k.summary.bottlenecks))
    if not ordered or ordered[0].summary is None:
        return text.line(bottlenecks.one_line(ordered[0]).removeprefix("profile of ")) if ordered else ""
    first = next(iter(ordered[0].summary.bottlenecks), None)
    why = bottlenecks.because(first) or f"{' and '.join(ordered[0].taken)}: nothing stands out"
    return text.line(f"{ordered[0].case.split('/', 1)[1]}, {why}")
