"""What the loop measures against: the kernel as shipped, or the last candidate that was accepted."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pgo_agent.agent import moves
from pgo_agent.agent.moves import workload
from pgo_agent.agent.moves.launch_sites import Config
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.own_list import AUTOTUNED
from pgo_agent.agent.run.record.store import Candidate
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.judge import bootstrap
from pgo_agent.sandbox.judge.gpu_judge import bundle_ref

SHIPPED = "shipped"
NEAR = 0.005  # of the best time: an H200's sessions measured a kernel against itself up to 0.6 % apart


def name(ctx: Context) -> str:
    """Id of the accepted candidate that no accepted one was measured against, or `shipped`."""
    return among(ctx.store.candidates(ctx.run.id))


def among(candidates: Iterable[Candidate]) -> str:
    """The same of a run's candidates.

    Several were measured against the same when they were given side by side: then the fastest.
    """
    accepted = [c for c in candidates if c.verdict == Verdict.ACCEPTED]
    beaten = {c.against for c in accepted}
    last = [c for c in accepted if c.id not in beaten]
    return max(last, key=lambda c: (c.generation, c.speedup or 0.0)).id if last else SHIPPED


def source(ctx: Context) -> str:
    """The kernel file as the incumbent has it."""
    return python(ctx, name(ctx))


def python(ctx: Context, which: str) -> str:
    """The kernel file of `shipped` or a candidate; for TTGIR, the one whose kernel it replaces."""
    if which == SHIPPED:
        return ctx.target.source
    candidate = ctx.store.candidate(ctx.run.id, which)
    return python(ctx, candidate.parent) if candidate.kind == "ttgir" else candidate.source


def side(ctx: Context, which: str) -> dict[str, Any]:
    """How the judge is told what to launch in each case for a baseline or an accepted candidate."""
    base = ctx.baseline()
    if which in (SHIPPED, "tuned", AUTOTUNED):
        return {
            c: {"bundle": bundle_ref(ctx.store.contents, p["bundle"]), "choice": p["choice"]}
            for c, p in base[which].items()
        }
    candidate = ctx.store.candidate(ctx.run.id, which)
    bundle = bundle_ref(ctx.store.contents, (candidate.built or {})["bundle"])
    return {c: {"bundle": bundle, "choice": label} for c, label in chosen(ctx, candidate).items()}


def chosen(ctx: Context, candidate: Candidate) -> dict[str, str]:
    """The configuration that the judge chose for each case; without a judge, the first."""
    evidence = ctx.store.evidence(ctx.run.id, candidate.id)
    judged: dict[str, str] = next(
        (e["choices"] for e in evidence.values() if isinstance(e, dict) and "choices" in e), {}
    )
    built = (candidate.built or {})["choices"]
    return {case: judged.get(case, options[0]["label"]) for case, options in built.items()}


def best_known(ctx: Context, which: str) -> dict[str, moves.Best]:
    """The best known configuration of each public case: of the tuned baseline for `shipped`, else of a candidate."""
    base = ctx.baseline()
    if which == SHIPPED:
        statics = {p["plan_id"]: p["statics"] for p in base["points"]}
        tuned = base["tuned"].items()
        return {
            c: _best(ctx, p["config"], statics[p["plan_id"]], p["bundle"], c, p["choice"], near(base["points"], p))
            for c, p in tuned
        }
    candidate = ctx.store.candidate(ctx.run.id, which)
    labels, built = chosen(ctx, candidate), candidate.built or {}
    found = {c: next(o for o in built["choices"][c] if o["label"] == labels[c]) for c in base["cases"]}
    return {
        c: _best(ctx, o["config"], [built["statics"][k] for k in o["kernels"]], built["bundle"], c, o["label"])
        for c, o in found.items()
    }


def near(points: Sequence[Mapping[str, Any]], best: Mapping[str, Any]) -> tuple[Config, ...]:
    """Configurations of a sweep that were timed beside the best one of their case and are not told from it."""
    if best["how"] == "estimate" or not best.get("finalist", True):
        return ()
    rivals = (p for p in points if p["case"] == best["case"] and p["how"] == best["how"] and p.get("finalist", True))
    tied = [p for p in rivals if not p["problem"] and p["ms"] and p["ms"] <= best["ms"] * (1 + NEAR)]
    return tuple(p["config"] for p in sorted(tied, key=lambda p: p["ms"]) if p["plan_id"] != best["plan_id"])


def _best(
    ctx: Context,
    config: Config,
    statics: Sequence[dict[str, Any]],
    bundle: str,
    case: str,
    label: str,
    tied: tuple[Config, ...] = (),
) -> moves.Best:
    manifest = ctx.store.contents.manifest(bundle)
    plan, by_name = manifest["plans"][case][label], {s["name"]: s for s in statics}
    blocks, by_key = dict[str, int](), dict[str, dict[str, Any]]()
    for step in (s for s in plan["steps"] if "kernel" in s):
        name = manifest["kernels"][step["kernel"]]["name"]
        blocks[name] = max(blocks.get(name, 0), math.prod(step["grid"]))
        by_key[step["kernel"]] = by_name[name]
    main = workload.hardest([plan], manifest["kernels"], by_key)[0]
    return moves.Best(config, by_name[main], by_name, blocks, tied)


def known_configs(ctx: Context) -> list[Config]:
    """Configurations that need no proposal: the grid's, and those of candidates that were built."""
    points = [p["config"] for p in ctx.baseline()["points"]]
    tried = [
        o["config"]
        for c in ctx.store.candidates(ctx.run.id)
        for options in (c.built or {}).get("choices", {}).values()
        for o in options
    ]
    return points + tried


def gains(evidence: Mapping[str, Any], over: str = "incumbent") -> dict[str, float]:
    """Case -> how many times faster than its incumbent a candidate ran, by the last stage that timed it.

    `over`: another side that was timed beside it; nothing where that stage did not.
    """
    samples = evidence.get("samples", {})
    times = samples.get("time") or samples.get("quick") or {}
    return {case: bootstrap.middle(t[over], t["candidate"]) for case, t in times.items() if over in t}


def plans(ctx: Context, which: str) -> dict[str, set[str]]:
    """The plans that `shipped` or a candidate brings for each case."""
    base = ctx.baseline()
    if which == SHIPPED:
        return {case: {base["shipped"][case]["plan_id"]} for case in base["cases"]}
    options = (ctx.store.candidate(ctx.run.id, which).built or {})["choices"]
    return {case: {o["plan_id"] for o in options[case]} for case in base["cases"]}
