"""Ends a run: a last timing session on the GPU of every side and library; without a GPU, a ranking of candidates."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pgo_agent.agent.evaluation import coverage_text, ranking
from pgo_agent.agent.evaluation.known_time import rate
from pgo_agent.agent.run import incumbent, shipped_configurations
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.record import shipped_results
from pgo_agent.agent.run.record.baseline import KnownTime, Work
from pgo_agent.agent.run.record.candidate import Candidate
from pgo_agent.agent.run.record.run_summary import (
    Bounds,
    CaseRates,
    KnownRate,
    LaunchedPlan,
    MeasuredRun,
    Picked,
    RankedCandidate,
    RankedRun,
    RunSummary,
    SideRate,
)
from pgo_agent.agent.run.shipped_configurations import AUTOTUNED
from pgo_agent.agent.search import lent
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.judge.interface import Ended, Judge
from pgo_agent.sandbox.judge.questions import Final, Timed
from pgo_agent.sandbox.judge.references import Side
from pgo_agent.sandbox.judge.timing import bootstrap
from pgo_agent.sandbox.judge.timing.bootstrap import Interval

_BASES = ("shipped", "tuned", AUTOTUNED)
# Candidates that are ranked without a GPU: all that were not found broken.
_RANKED = {Verdict.CHECKED, Verdict.BUILT, Verdict.UNDECIDED}


def finish(ctx: Context) -> RunSummary:
    """Write the summary and the state of the run, and return the summary."""
    seconds = round(ctx.spend(), 1)
    summary = lent.summary(ctx) or (_measured(ctx, ctx.gpu, seconds) if ctx.gpu else _ranked(ctx, seconds))
    judged = [c for c in ctx.store.candidates(ctx.run.id) if c.verdict is not None]
    if not judged and ctx.out_of_time():
        state = "budget"
    elif ctx.gpu is None or summary.winner:
        state = "done"
    else:
        state = "none_found"
    ctx.store.set_state(ctx.run.id, state, summary)
    ctx.emit("run.completed", state=state, summary=summary.as_json(), gpu_seconds=ctx.gpu_seconds())
    return summary


def _measured(ctx: Context, gpu: Judge, seconds: float) -> MeasuredRun:
    """Time baselines, winner and libraries on every public case, against one another in one session.

    The autotuner's pick is a side of its own when its code differs from the kernel as shipped.
    """
    base, winner = ctx.baseline(), incumbent.name(ctx)
    names, sides = _sides(ctx, winner)
    ctx.emit("phase", phase="final", doing="timing baselines, winner and libraries in one session")
    timed = _timed(ctx, gpu, sides, base.cases)
    times = timed.times
    against = dict[str, Bounds]()
    for other in (n for n in _BASES if n in sides and "winner" in sides):
        pairs = {c: (t[other], t["winner"]) for c, t in times.items()}
        against[other] = _bounds(bootstrap.geomean(pairs, base.weights))
    return MeasuredRun(
        winner=winner if winner != incumbent.SHIPPED else None,
        against=against,
        cases={c: _rates(ctx, t, base.work_of(c)) for c, t in times.items()},
        times=times,
        environment=gpu.environment,
        sides={n: _plans(ctx, n) for n in names},
        autotuned={c: Picked(p.said, p.problem) for c, p in base.autotuned.items()},
        unfit=base.unfit,
        seconds=seconds,
        uncompiled=timed.uncompiled,
        libraries=timed.libraries,
    )


def announce(ctx: Context) -> None:
    """Have the last session of a run held soon that proposes nothing: a judge elsewhere can begin with it."""
    if ctx.gpu is not None and not ctx.settings.compile_reference:
        ctx.gpu.queue(Final(_sides(ctx, incumbent.SHIPPED)[1], ctx.baseline().cases))


def _sides(ctx: Context, winner: str) -> tuple[list[str], dict[str, Side]]:
    """Names of baselines and the winner, if there is one, and what each of them launches."""
    names = ["shipped", "tuned", *([AUTOTUNED] if shipped_configurations.differ(ctx.baseline()) else [])]
    names += [winner] if winner != incumbent.SHIPPED else []
    return names, {("winner" if n == winner != incumbent.SHIPPED else n): incumbent.side(ctx, n) for n in names}


def _timed(ctx: Context, gpu: Judge, sides: dict[str, Side], cases: tuple[str, ...]) -> Timed:
    """Return the times, and the cases in which the reference was not compiled, with why; None: nobody asked for it.

    A judge process that ends with it is asked again without it: the run does not fail for it.
    """
    if not ctx.settings.compile_reference:
        return gpu.ask(Final(sides, cases))
    try:
        return gpu.ask(Final(sides, cases, compile_reference=True))
    except Ended as e:
        why = f"the judge's process {'did not come to an end' if e.timed_out else 'ended'} at '{e.stage}'"
        return replace(gpu.ask(Final(sides, cases)), uncompiled=dict.fromkeys(cases, why))


def _bounds(x: Interval) -> Bounds:
    low, middle, high = x.as_json()
    return low, middle, high


def _rates(ctx: Context, times: Mapping[str, Sequence[float]], work: Work) -> CaseRates:
    medians = {n: statistics.median(ms) for n, ms in times.items()}
    ratio = {n: _bounds(bootstrap.ratio(times[n], times["winner"])) for n in _BASES if n in times and "winner" in times}
    return CaseRates(
        {n: SideRate(ms, *rate(ctx, work, ms)) for n, ms in medians.items()},
        _bounds(bootstrap.ratio(times["shipped"], times["A/A"])),
        ratio or None,
    )


def _plans(ctx: Context, name: str) -> dict[str, LaunchedPlan]:
    """Return case -> the plan that a side launches."""
    base = ctx.baseline()
    if name in _BASES:
        return {c: LaunchedPlan(p.choice, p.plan_id, p.codes) for c, p in base.best(name).items()}
    candidate = ctx.store.candidate(ctx.run.id, name)
    built, labels = candidate.build, incumbent.chosen(ctx.store, candidate)
    options = {c: built.choice(c, labels[c]) for c in base.cases}
    return {c: LaunchedPlan(o.label, o.plan_id, built.codes_of(o)) for c, o in options.items()}


def _ranked(ctx: Context, seconds: float) -> RankedRun:
    """Rank candidates by what is known of their time; each time carries its source."""
    base, candidates = ctx.baseline(), ctx.store.candidates(ctx.run.id)
    rows = [_ranked_candidate(ctx, c) for c in candidates if c.verdict in _RANKED and c.has_bundle]
    rows.sort(key=lambda r: (not r.how.startswith("recorded"), r.relative is None, r.relative or 1.0))
    sides = {s: base.best(s) for s in ("shipped", "tuned")}
    return RankedRun(
        ranking=tuple(rows),
        cases={c: {s: _shown(ctx, best[c].said, best[c], c) for s, best in sides.items()} for c in base.cases},
        device=ctx.device.name,
        varied=base.varied,
        seconds=seconds,
    )


def _ranked_candidate(ctx: Context, c: Candidate) -> RankedCandidate:
    best = {case: _shown(ctx, n.choice, n.time, case) for case, n in ranking.novel(ctx, c).items()}
    covered = coverage_text.of(ctx.store.evidence(c.run, c.id))
    relative, how = _relative(ctx, c, {str(b.how) for b in best.values()})
    return RankedCandidate(c.id, c.move, str(c.verdict), relative, how, best, covered)


def _relative(ctx: Context, candidate: Candidate, sources: set[str]) -> tuple[float | None, str]:
    """Return its time over the tuned baseline's, and the source of that. `sources`: of its new configurations."""
    recorded = shipped_results.judged(candidate.source, ctx.device.name)
    if recorded is not None and recorded[1]:
        return 1 / recorded[1], f"recorded: {recorded[0]}, {recorded[1]:.3f}x"
    if not sources:
        return 1.0, "the baselines' own"
    relative = ranking.relative(ctx, candidate)
    if relative is None:
        return None, "no estimate for a rewrite"
    return relative, "partly recorded" if len(sources) > 1 else sources.pop()


def _shown(ctx: Context, choice: str, point: KnownTime, case: str) -> KnownRate:
    return KnownRate(choice, point.time, point.how, *rate(ctx, ctx.baseline().work_of(case), point.time))
