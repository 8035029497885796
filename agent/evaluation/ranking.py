"""The speed of a candidate before it is judged: a recording of its very code, or an estimate.

It orders the judging of a generation, the parents of the next one, and the ranking on a machine without a GPU. Nothing
here is a measurement of this run.
"""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from pgo_agent.agent.evaluation.known_time import Statics, known_time
from pgo_agent.agent.profile import cost_model
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.record.baseline import KnownTime, TimeSource
from pgo_agent.agent.run.record.candidate import Candidate


@dataclass(frozen=True)
class Novel:
    """A configuration that a candidate adds to those of the baselines."""

    choice: str  # its label
    statics: Statics
    time: KnownTime


def rank(ctx: Context, candidate: Candidate) -> float:
    """Return the key to order candidates by, the best first: `relative`, or 1.0 if that is unknown."""
    known_ratio = relative(ctx, candidate)
    return 1.0 if known_ratio is None else known_ratio


def relative(ctx: Context, candidate: Candidate) -> float | None:
    """Return its known or estimated time over the tuned baseline's: the geometric mean over cases with new plans.

    None if there is only an estimate for a rewrite or another way to load tiles: estimates can order configurations of
    one source, not different sources.
    """
    base = ctx.baseline()
    tuned = {c: next(p for p in base.points if p.plan_id == t.plan_id) for c, t in base.tuned.items()}
    ratios = [
        best.time.time / tuned[case].time
        for case, best in novel(ctx, candidate).items()
        if best.time.how is not TimeSource.ESTIMATE
        or (candidate.kind == "launch" and _alike(best.statics, tuned[case].statics))
    ]
    return statistics.geometric_mean(ratios) if ratios else None


def _alike(one: Statics, other: Statics) -> bool:
    return cost_model.loading(one) == cost_model.loading(other)


def novel(ctx: Context, candidate: Candidate) -> Mapping[str, Novel]:
    """Return case -> the best configuration that the candidate adds to those of the baselines, by known time."""
    base, built = ctx.baseline(), candidate.build
    manifest = ctx.store.contents.manifest(built.bundle)
    measured = {p.plan_id for p in base.points}
    best = dict[str, Novel]()
    for case in base.cases:
        work, added = base.work_of(case), list[Novel]()
        for o in (o for o in built.choices[case] if o.plan_id not in measured):
            statics = built.statics_of(o)
            time = known_time(ctx, manifest, case, o.label, o.plan_id, statics, work)
            added.append(Novel(o.label, statics, time))
        if added:
            best[case] = min(added, key=lambda n: (n.time.how is TimeSource.ESTIMATE, n.time.time))
    return best
