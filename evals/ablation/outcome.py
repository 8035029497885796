"""What came of one run of an ablation, read from the record of the run: its score, and for a controlled run what it had
reached after each generation and what that had taken.

Ratios are to the tuned baseline, timed beside the candidate in the process that confirmed it, which chose nothing by
what it saw; a geometric mean over public cases. A run counts 1 until a candidate is accepted. GPU seconds of a
generation are those of judging its candidates: the baseline and the profile are the lender's, whose row has theirs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pgo_agent.agent.exit_codes import FAULTY
from pgo_agent.agent.proposal import llm, prompt
from pgo_agent.agent.proposal.prompt.profile_told import bound_by
from pgo_agent.agent.run import incumbent
from pgo_agent.agent.run.record import model_calls, profiles, prompts
from pgo_agent.agent.run.record.candidate import Candidate
from pgo_agent.agent.run.record.profiles import StoredProfile
from pgo_agent.agent.run.record.run import Run
from pgo_agent.agent.run.record.run_summary import MeasuredRun
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import ProfileVisibility
from pgo_agent.agent.version import commit_of
from pgo_agent.sandbox import devices
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.json_codec import JsonObject, Record
from pgo_agent.sandbox.judge.timing import bootstrap
from pgo_agent.sandbox.profile.kernel_profile import PassName

ROOF = "roof"
_TOLD: Mapping[ProfileVisibility, tuple[str, ...]] = {
    ProfileVisibility.NONE: (),
    ProfileVisibility.BOUND: (),
    ProfileVisibility.COUNTERS: (PassName.COUNTERS,),
    ProfileVisibility.ALL: (PassName.TIMELINE,),
}
NEAR = 1.05  # of tuned: what it takes to get there is told


@dataclass(frozen=True)
class Generation(Record):
    """What a run had come to after a generation."""

    best: float  # best accepted ratio to the tuned baseline so far; 1 without one
    gpu_seconds: float  # of judging all candidates so far
    tokens: int  # of all prompts and replies so far
    prompts: int  # messages of this generation
    verdicts: tuple[str, ...]  # of its candidates


@dataclass(frozen=True)
class Taken(Record):
    """What it took to get somewhere: all generations up to the one that did."""

    gpu_seconds: float
    tokens: int


def of(store: Store, run: Run, minutes: float) -> JsonObject:
    """Return what every row has. `minutes`: of the plan."""
    candidates, spent = store.candidates(run.id), store.spent(run.id)
    judged = [c for c in candidates if c.verdict is not None]
    return {
        "state": run.state,
        "truncated": run.seconds > 60 * minutes,
        "judged": len(judged),
        "accepted": [c.move for c in judged if c.verdict == Verdict.ACCEPTED],
        "seconds": round(run.seconds, 1),
        "tokens": int(spent["tokens"]),
        "money": spent["money"],
        "gpu_seconds": run.gpu_seconds,
        "environment": run.summary.environment.as_json() if isinstance(run.summary, MeasuredRun) else None,
        "commit": commit_of(),
    }


def of_lender(store: Store, run: Run) -> JsonObject:
    """Return what the row of a lender has beside that: what the profile lacks that others are told of, and why."""
    return {"missing": _missing(store, run, incumbent.SHIPPED, (*PassName, ROOF))}


def of_controlled(store: Store, run: Run) -> JsonObject:
    """Return what the row of a controlled run has beside that."""
    reached = generations(store, run)
    best = max((g.best for g in reached), default=1.0)
    return {
        "generations": [g.as_json() for g in reached],
        "to_near": _taken(reached, NEAR),
        "to_best": _taken(reached, best) if best > 1.0 else None,
        "first_try": first_try(store, run),
        "answered_by": sorted({s.model for s in model_calls.shares(store, run.id)}),
        "left_out": sorted({s for g in store.generations(run.id) for s in _left_out(store, run.id, g)}),
        "baseline_of": run.settings.baseline_of,
        "profile_of": run.settings.profile_of,
        "missing": {c.id: lacking for c in store.candidates(run.id) if (lacking := _of_own(store, run, c.id))},
    }


def generations(store: Store, run: Run) -> list[Generation]:
    """Return what the run had come to after each generation that its plan gives it; one that did not come about changed
    nothing."""
    best, seconds, tokens, result = 1.0, 0.0, 0, list[Generation]()
    spent = model_calls.tokens_by_generation(store, run.id)
    for n in range(1, 1 + (run.settings.generations or len(store.generations(run.id)))):
        candidates = store.candidates(run.id, n)
        best = max([best, *(over_tuned(store, run, c) for c in candidates if c.verdict == Verdict.ACCEPTED)])
        seconds += sum(c.seconds or 0.0 for c in candidates)
        tokens += spent.get(n, 0)
        verdicts = tuple(c.verdict for c in candidates if c.verdict)
        result.append(Generation(best, round(seconds, 3), tokens, len(prompts.asked(store, run.id, n)), verdicts))
    return result


def over_tuned(store: Store, run: Run, c: Candidate) -> float:
    """Return how many times faster than the tuned baseline an accepted candidate is. Raises ValueError where that was
    not timed beside it."""
    times = _confirmed(store.evidence(run.id, c.id))
    pairs = {case: (t["tuned"], t["candidate"]) for case, t in times.items() if "tuned" in t}
    if not pairs or run.baseline is None:
        raise ValueError(f"candidate {c.id} of run {run.id} was accepted, and not timed beside the tuned baseline")
    return bootstrap.geomean(pairs, run.baseline.weights).as_json()[1]


def _confirmed(evidence: Mapping[str, Any]) -> Mapping[str, Mapping[str, Sequence[float]]]:
    """Case -> side -> times of the process that confirmed."""
    again = (body["again"] for body in evidence.values() if "again" in body)
    return next((a["time"] for a in again if "time" in a), {})


def first_try(store: Store, run: Run) -> JsonObject:
    """Return how many candidates the first reply held, with the parts of it that could not be read, and how many had
    nothing wrong with them."""
    first = [c for c in store.candidates(run.id, 1) if c.move == llm.MOVE]
    unread = sum(bool(about) for about in prompts.asked(store, run.id, 1))
    valid = sum(c.verdict is not None and c.verdict not in FAULTY for c in first)
    return {"tries": max(1, len(first) + unread), "valid": valid}


def _of_own(store: Store, run: Run, which: str) -> dict[str, dict[str, str]]:
    """What the profile of a candidate lacks of what is told."""
    told = () if run.settings.profile_of else _TOLD[run.settings.profile_visibility]
    return _missing(store, run, which, told)


def _missing(store: Store, run: Run, which: str, names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Case -> pass of these -> why the profile of a candidate, if there is one, lacks it."""
    lacking = {k.case: _absent(store, run, k) for k in profiles.of(store, run.id, which)}
    of_names = {case: {n: why for n, why in absent.items() if n in names} for case, absent in lacking.items()}
    return {case: absent for case, absent in of_names.items() if absent}


def _absent(store: Store, run: Run, stored: StoredProfile) -> dict[str, str]:
    whole = profiles.whole(store.contents, stored)
    known = whole is not None and run.baseline is not None
    bound = bound_by(run.baseline, whole, devices.find(run.device)) if whole and run.baseline else ""
    roof = "" if bound else "the target tells no work of it" if known else profiles.NOT_KEPT
    return {n: why for n, why in {**stored.passes, ROOF: roof}.items() if why}


def _taken(reached: Sequence[Generation], ratio: float) -> JsonObject | None:
    first = next((g for g in reached if g.best >= ratio), None)
    return Taken(first.gpu_seconds, first.tokens).as_json() if first else None


def _left_out(store: Store, run: str, generation: int) -> list[str]:
    return prompt.left_out(prompts.prompt(store, run, generation, "") or "")
