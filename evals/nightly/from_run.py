"""The row of a run that has ended: from the workspace's record and from nothing else."""

import difflib
from collections.abc import Iterator
from pathlib import Path

from pgo_agent.agent.llm import templates
from pgo_agent.agent.llm.models.types import OPTIMIZER, sha256
from pgo_agent.agent.run.record.candidate import Candidate
from pgo_agent.agent.run.record.run import Run
from pgo_agent.agent.run.record.run_summary import MeasuredRun
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.version import commit_of
from pgo_agent.agent.views import show
from pgo_agent.evals.nightly.plan import NightlyPlan, NightlyRun
from pgo_agent.evals.nightly.row import AGAIN, SHIPPED, WINNER, Case, Row, Tried, Winner
from pgo_agent.sandbox import devices, json_codec
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.judge.machine import Environment


def of(store: Store, run: Run, plan: NightlyPlan, planned: NightlyRun) -> Row:
    """Return the row of a run. A run that measured nothing gets a row that says why, and counts as 1.0."""
    calls, spent, failed = store.calls(run.id), store.spent(run.id), _failed(run)
    return Row(
        kernel=Path(run.target).stem,
        target=planned.target,
        optimizer=planned.optimizer,
        seed=planned.seed,
        run=run.id,
        when=run.created,
        commit=commit_of(),
        digest=run.digest,
        environment=_environment(run),
        budget=dict(plan.budget),
        state=run.state,
        failed=failed,
        truncated=run.seconds > 60 * plan.limits.minutes or run.gpu_seconds > plan.gpu_limit,
        cases={} if failed else _cases(run),
        candidates=tuple(_tried(store, run)),
        winner=None if failed else _winner(store, run),
        seconds=round(run.seconds, 1),
        gpu_seconds=round(run.gpu_seconds, 3),
        tokens=int(spent["tokens"]),
        money=spent["money"],
        unfit=run.baseline.unfit if run.baseline else (),
        models=store.answered(run.id),
        prompts=tuple(sha256(c.prompt) for c in calls),
        templates=templates.digest(OPTIMIZER),
        suite=plan.suite,
        uncompiled=run.summary.uncompiled if isinstance(run.summary, MeasuredRun) else None,
        refused=run.summary.libraries if isinstance(run.summary, MeasuredRun) else None,
    )


def _failed(run: Run) -> str:
    if run.error:
        return run.error
    measured = isinstance(run.summary, MeasuredRun) and run.summary.times
    return "" if measured else "the run held no last session: nothing was measured"


def _environment(run: Run) -> Environment:
    """Of a run that failed before a GPU was asked, the GPU that it was for."""
    return run.environment or Environment(devices.find(run.device).name)


def _cases(run: Run) -> dict[str, Case]:
    base, summary = run.baseline, run.summary
    if base is None or not isinstance(summary, MeasuredRun):
        raise ValueError(f"run {run.id} held no last session")
    sides, of = summary.sides, {AGAIN: SHIPPED, WINNER: str(summary.winner)}
    cases = {}
    for case, ms in summary.times.items():
        work, weight = base.work_of(case), (base.weights or {}).get(case, 1.0)
        plans = {side: sides[name][case].as_json() for side in ms if (name := of.get(side, side)) in sides}
        cases[case] = Case(int(work.flops), int(work.bytes), weight, dict(ms), plans)
    return cases


def _tried(store: Store, run: Run) -> Iterator[Tried]:
    for c in store.candidates(run.id):
        if c.verdict is not None:
            judged = (c.verdict, c.stage or "", c.reason or "", c.speedup, c.against, c.seconds or 0.0)
            yield Tried(c.id, c.move, c.kind, c.author, *judged)


def _winner(store: Store, run: Run) -> Winner | None:
    name = run.summary.winner if isinstance(run.summary, MeasuredRun) else None
    if name is None:
        return None
    c = store.candidate(run.id, name)
    moves = tuple(x.move for x in _line(store, c))
    stages = tuple({k: v for k, v in s.items() if k != "found"} for s in _stages(store, c))
    return Winner(c.id, moves, c.kind, c.author, c.reason or "", diff(show.replaced(store, run, c), c.source), stages)


def diff(before: str, after: str) -> str:
    lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), "as shipped", "winner")
    return "".join(lines)


def _line(store: Store, c: Candidate) -> list[Candidate]:
    """Return a candidate and what it was made of, the oldest first."""
    if c.parent == SHIPPED:
        return [c]
    return [*_line(store, store.candidate(c.run, c.parent)), c]


def _stages(store: Store, c: Candidate) -> list[JsonObject]:
    evidence = store.evidence(c.run, c.id).values()
    stages = next((e["stages"] for e in evidence if "stages" in e), [])
    return list(json_codec.from_json(tuple[JsonObject, ...], stages))
