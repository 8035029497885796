"""Ends a run: one last session on the GPU with every side and library; without a GPU, a ranking of what was built."""

import statistics
from collections.abc import Mapping
from typing import Any

from pgo_agent.agent.evaluation import baseline, coverage_text, ranking
from pgo_agent.agent.run import incumbent, own_list
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.own_list import AUTOTUNED
from pgo_agent.agent.run.record import shipped_results
from pgo_agent.agent.run.record.store import Candidate
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
    times: dict[str, dict[str, list[float]]] = ctx.gpu.ask("final", sides=sides, cases=base["cases"])["times"]
    against = {}
    if "winner" in sides:
        for other in (n for n in _BASES if n in sides):
            pairs = {c: (t[other], t["winner"]) for c, t in times.items()}
            against[other] = bootstrap.geomean(pairs, base["weights"]).as_json()
    cases = {c: _row(ctx, t, _work(base, c)) for c, t in times.items()}
    return {
        "winner": winner if winner != incumbent.SHIPPED else None,
        "against": against,
        "cases": cases,
        "times": times,
        "environment": ctx.gpu.environment,
        "sides": {n: _plans(ctx, n) for n in names},
        AUTOTUNED: {c: {"said": p["said"], "problem": p["problem"]} for c, p in base.get(AUTOTUNED, {}).items()},
        "unfit": base.get("unfit", []),
    }


def _row(ctx: Context, times: Mapping[str, list[float]], work: Mapping[str, int]) -> dict[str, Any]:
    from pgo_agent.sandbox.judge import bootstrap

    medians = {n: statistics.median(ms) for n, ms in times.items()}
    row: dict[str, Any] = {"sides": {n: {"ms": ms} | baseline.rate(ctx, work, ms) for n, ms in medians.items()}}
    if "winner" in times:
        row["ratio"] = {n: bootstrap.ratio(times[n], times["winner"]).as_json() for n in _BASES if n in times}
    row["noise"] = bootstrap.ratio(times["shipped"], times["A/A"]).as_json()
    return row


def _plans(ctx: Context, name: str) -> dict[str, dict[str, Any]]:
    """Case -> label, plan id and code ids of what a side launches."""
    base = ctx.baseline()
    if name in _BASES:
        return {c: {k: p[k] for k in ("choice", "plan_id", "codes")} for c, p in base[name].items()}
    candidate = ctx.store.candidate(ctx.run.id, name)
    built, labels = candidate.built or {}, incumbent.chosen(ctx, candidate)
    found = {}
    for case in base["cases"]:
        option = next(o for o in built["choices"][case] if o["label"] == labels[case])
        found[case] = {
            "choice": option["label"],
            "plan_id": option["plan_id"],
            "codes": [built["codes"][k] for k in option["kernels"]],
        }
    return found


def _ranking(ctx: Context) -> dict[str, Any]:
    """Candidates in order of what is known of them, each time named by where it comes from."""
    base = ctx.baseline()
    rows = []
    for c in ctx.store.candidates(ctx.run.id):
        if c.verdict in _RANKED and (c.built or {}).get("bundle"):
            own = {"coverage": coverage_text.of(ctx.store.evidence(c.run, c.id)).as_json()}
            rows.append({"candidate": c.id, "move": c.move, "verdict": c.verdict, **_known(ctx, c), **own})
    rows.sort(key=lambda r: (not r["how"].startswith("recorded"), r["relative"] is None, r["relative"] or 1.0))
    cases = {c: {s: _shown(ctx, base[s][c], _work(base, c)) for s in ("shipped", "tuned")} for c in base["cases"]}
    told = {"winner": None, "ranking": rows, "cases": cases, "environment": None, "device": ctx.device.name}
    return told | {"varied": base.get("varied")}


def _known(ctx: Context, candidate: Candidate) -> dict[str, Any]:
    best = {case: _shown(ctx, o, _work(ctx.baseline(), case)) for case, o in ranking.novel(ctx, candidate).items()}
    told = shipped_results.judged(candidate.id, ctx.device.name)
    if told is not None and told[1]:
        return {"relative": 1 / told[1], "how": f"recorded: {told[0]}, {told[1]:.3f}x", "cases": best}
    if not best:
        return {"relative": 1.0, "how": "the baselines' own", "cases": best}
    sources, relative = {b["how"] for b in best.values()}, ranking.relative(ctx, candidate)
    if relative is None:
        return {"relative": None, "how": "no estimate for a rewrite", "cases": best}
    return {"relative": relative, "how": "partly recorded" if len(sources) > 1 else sources.pop(), "cases": best}


def _shown(ctx: Context, point: Mapping[str, Any], work: Mapping[str, int]) -> dict[str, Any]:
    shown = {"choice": point.get("said", point["choice"]), "ms": point["ms"], "how": point["how"]}
    return shown | baseline.rate(ctx, work, point["ms"])


def _work(base: Mapping[str, Any], case: str) -> dict[str, int]:
    kind, name = case.split("/", 1)
    return dict(base["work"][kind][name])
