"""Ends a run: one last session on the GPU with every side and library; without a GPU, a ranking of what was built."""

import statistics
from collections.abc import Mapping
from typing import Any

from pgo_agent.agent.evaluation import coverage_text, ranking
from pgo_agent.agent.evaluation.known_time import rate
from pgo_agent.agent.run import incumbent, own_list
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.own_list import AUTOTUNED
from pgo_agent.agent.run.record import shipped_results
from pgo_agent.agent.run.record.baseline import KnownTime, Work
from pgo_agent.agent.run.record.candidate import Candidate
from pgo_agent.sandbox.gate.verdict import Verdict

_BASES = ("shipped", "tuned", AUTOTUNED)
# What a candidate can still be worth without a GPU: everything that was not found to be broken.
_RANKED = {Verdict.CHECKED, Verdict.BUILT, Verdict.UNDECIDED}


def finish(ctx: Context) -> dict[str, Any]:
    """Writes the summary and the state of the run; gives the summary."""
    seconds = ctx.spend()
    summary = (_measured(ctx) if ctx.gpu else _ranking(ctx)) | {"seconds": round(seconds, 1)}
    judged = [c for c in ctx.store.candidates(ctx.run.id) if c.verdict is not None]
    if not judged and ctx.out_of_time():
        state = "budget"
    elif ctx.gpu is None or summary["winner"]:
        state = "done"
    else:
        state = "none_found"
    ctx.store.set_state(ctx.run.id, state, summary)
    ctx.emit("run.completed", state=state, summary=summary, gpu_seconds=ctx.gpu_seconds())
    return summary


def _measured(ctx: Context) -> dict[str, Any]:
    """Baselines, winner and libraries on every public case, timed against one another in one session.

    What the autotuner picks is a side of its own where it is other code than as shipped.
    """
    from pgo_agent.sandbox.judge import bootstrap

    base, winner = ctx.baseline(), incumbent.name(ctx)
    names = ["shipped", "tuned", *([AUTOTUNED] if own_list.differ(base) else [])]
    names += [winner] if winner != incumbent.SHIPPED else []
    ctx.emit("phase", phase="final", doing="timing baselines, winner and libraries in one session")
    sides = {("winner" if n == winner and n != incumbent.SHIPPED else n): incumbent.side(ctx, n) for n in names}
    if ctx.gpu is None:
        raise RuntimeError("a final session needs a GPU")
    times: dict[str, dict[str, list[float]]] = ctx.gpu.ask("final", sides=sides, cases=base.cases)["times"]
    against = {}
    if "winner" in sides:
        for other in (n for n in _BASES if n in sides):
            pairs = {c: (t[other], t["winner"]) for c, t in times.items()}
            against[other] = bootstrap.geomean(pairs, base.weights).as_json()
    cases = {c: _row(ctx, t, base.work_of(c)) for c, t in times.items()}
    return {
        "winner": winner if winner != incumbent.SHIPPED else None,
        "against": against,
        "cases": cases,
        "times": times,
        "environment": ctx.gpu.environment,
        "sides": {n: _plans(ctx, n) for n in names},
        AUTOTUNED: {c: {"said": p.said, "problem": p.problem} for c, p in base.autotuned.items()},
        "unfit": [u.as_json() for u in base.unfit],
    }


def _row(ctx: Context, times: Mapping[str, list[float]], work: Work) -> dict[str, Any]:
    from pgo_agent.sandbox.judge import bootstrap

    medians = {n: statistics.median(ms) for n, ms in times.items()}
    row: dict[str, Any] = {"sides": {n: {"ms": ms} | rate(ctx, work, ms) for n, ms in medians.items()}}
    if "winner" in times:
        row["ratio"] = {n: bootstrap.ratio(times[n], times["winner"]).as_json() for n in _BASES if n in times}
    row["noise"] = bootstrap.ratio(times["shipped"], times["A/A"]).as_json()
    return row


def _plans(ctx: Context, name: str) -> dict[str, dict[str, Any]]:
    """Case -> label, plan id and code ids of what a side launches."""
    base = ctx.baseline()
    if name in _BASES:
        best = base.best(name).items()
        return {c: {"choice": p.choice, "plan_id": p.plan_id, "codes": list(p.codes)} for c, p in best}
    candidate = ctx.store.candidate(ctx.run.id, name)
    built, labels = candidate.build, incumbent.chosen(ctx.store, candidate)
    options = {c: built.choice(c, labels[c]) for c in base.cases}
    return {c: {"choice": o.label, "plan_id": o.plan_id, "codes": list(built.codes_of(o))} for c, o in options.items()}


def _ranking(ctx: Context) -> dict[str, Any]:
    """Candidates in order of what is known of them, each time named by where it comes from."""
    base = ctx.baseline()
    rows = []
    for c in ctx.store.candidates(ctx.run.id):
        if c.verdict in _RANKED and c.has_bundle:
            own = {"coverage": coverage_text.of(ctx.store.evidence(c.run, c.id)).as_json()}
            rows.append({"candidate": c.id, "move": c.move, "verdict": c.verdict, **_known(ctx, c), **own})
    rows.sort(key=lambda r: (not r["how"].startswith("recorded"), r["relative"] is None, r["relative"] or 1.0))
    sides = {s: base.best(s) for s in ("shipped", "tuned")}
    cases = {c: {s: _shown(ctx, best[c].said, best[c], c) for s, best in sides.items()} for c in base.cases}
    told = {"winner": None, "ranking": rows, "cases": cases, "environment": None, "device": ctx.device.name}
    return told | {"varied": list(base.varied)}


def _known(ctx: Context, candidate: Candidate) -> dict[str, Any]:
    best = {case: _shown(ctx, n.choice, n.time, case) for case, n in ranking.novel(ctx, candidate).items()}
    told = shipped_results.judged(candidate.id, ctx.device.name)
    if told is not None and told[1]:
        return {"relative": 1 / told[1], "how": f"recorded: {told[0]}, {told[1]:.3f}x", "cases": best}
    if not best:
        return {"relative": 1.0, "how": "the baselines' own", "cases": best}
    sources, relative = {b["how"] for b in best.values()}, ranking.relative(ctx, candidate)
    if relative is None:
        return {"relative": None, "how": "no estimate for a rewrite", "cases": best}
    return {"relative": relative, "how": "partly recorded" if len(sources) > 1 else sources.pop(), "cases": best}


def _shown(ctx: Context, choice: str, known: KnownTime, case: str) -> dict[str, Any]:
    shown = {"choice": choice, "ms": known.ms, "how": str(known.how)}
    return shown | rate(ctx, ctx.baseline().work_of(case), known.time)
