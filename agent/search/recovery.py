"""Finds where an interrupted run goes on, from its record alone, and rebuilds lost bundles.

A power loss may truncate or lose files: the content store then lacks bundles that the record names. Relies on builds
being reproducible: a bundle that differs never replaces one that was judged. The record itself is not repaired:
`database.py` says when it is damaged.
"""

from typing import Literal

from pgo_agent.agent.evaluation import baseline, build
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.record.baseline import Baseline
from pgo_agent.agent.run.record.candidate import Candidate
from pgo_agent.agent.search import profile_incumbent
from pgo_agent.sandbox.errors import EnvironmentFault
from pgo_agent.sandbox.gate.verdict import Verdict

Node = Literal["baseline", "profile", "summarize", "propose", "build", "judge", "record"]


def next_node(ctx: Context) -> tuple[Node, int, int]:
    """Return the next node by the record, its generation, and how many generations without a win come before it.

    A run that was at its end proposes once more and gets nothing, as before: no prompt is asked twice.
    """
    if ctx.store.run(ctx.run.id).baseline is None:
        return "baseline", 1, 0
    n, generations_without_win = 0, 0
    for n, finished in ctx.store.generations(ctx.run.id).items():
        candidates = ctx.store.candidates(ctx.run.id, n)
        undecided = [c for c in candidates if c.verdict is None]
        if undecided:
            return "build" if any(c.built is None for c in undecided) else "judge", n, generations_without_win
        if not finished:
            return "record", n, generations_without_win
        generations_without_win = (
            0 if any(c.verdict == Verdict.ACCEPTED for c in candidates) else generations_without_win + 1
        )
    return profile_incumbent.due(ctx) or "propose", n + 1, generations_without_win


# the content store ----------------------------------------------------------------------------------------------------


def rebuild_lost(ctx: Context) -> None:
    """Build the run's lost bundles again. Raises EnvironmentFault when they differ from before."""
    base, candidates = ctx.store.run(ctx.run.id).baseline, ctx.store.candidates(ctx.run.id)
    lost = {b for b in _of_baseline(base) | set(map(_bundle, candidates)) if b and not ctx.store.contents.whole(b)}
    if not lost:
        return
    ctx.emit("phase", phase="mend", doing=f"building {len(lost)} lost or damaged bundles again")
    if lost & _of_baseline(base):
        baseline.rebuild(ctx)
    for candidate in candidates:
        if _bundle(candidate) in lost:
            build.again(ctx, candidate)
    left = [b for b in lost if not ctx.store.contents.whole(b)]
    if left:
        raise EnvironmentFault(
            f"{len(left)} bundles of run {ctx.run.id} are damaged, and come out different when they are built again",
            "put back a copy of the workspace, or start again with `pgo-agent optimize`",
        )


def _of_baseline(base: Baseline | None) -> set[str]:
    return {p.bundle for p in base.points} if base else set()


def _bundle(candidate: Candidate) -> str:
    return candidate.built.bundle if candidate.built else ""
