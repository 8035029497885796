"""Runs and candidates in outline, as `runs --json` and `show RUN --json` print them: data, made from the record."""

from dataclasses import dataclass

from pgo_agent.agent.evaluation import coverage_text
from pgo_agent.agent.run.record.candidate import Candidate
from pgo_agent.agent.run.record.run import Run
from pgo_agent.agent.run.record.store import Store
from pgo_agent.sandbox.json_codec import JsonObject


@dataclass(frozen=True)
class RunOutline:
    """A run, as `runs --json` lists it."""

    run: str
    target: str
    device: str
    state: str
    created: str
    seconds: float
    candidates: int
    accepted: int


@dataclass(frozen=True)
class CandidateOutline:
    """A candidate of `show RUN --json`."""

    id: str
    generation: int
    proposer: str | None
    author: str
    move: str
    kind: str
    verdict: str | None
    stage: str | None
    reason: str | None
    speedup: float | None
    seconds: float | None
    coverage: JsonObject
    cites: JsonObject | None


def of_run(store: Store, r: Run) -> RunOutline:
    candidates = store.candidates(r.id)
    accepted = sum(c.verdict == "accepted" for c in candidates)
    return RunOutline(r.id, r.target, r.device, r.state, r.created, r.seconds, len(candidates), accepted)


def of_candidate(store: Store, c: Candidate) -> CandidateOutline:
    return CandidateOutline(
        id=c.id,
        generation=c.generation,
        proposer=c.proposer,
        author=c.author,
        move=c.move,
        kind=c.kind,
        verdict=c.verdict,
        stage=c.stage,
        reason=c.reason,
        speedup=c.speedup,
        seconds=c.seconds,
        coverage=coverage_text.of(store.evidence(c.run, c.id)).as_json(),
        cites=c.cites.as_json() if c.cites else None,
    )
