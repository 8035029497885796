"""The incumbent, against which candidates are measured: the kernel as shipped, or the last accepted candidate."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from pgo_agent.agent import moves
from pgo_agent.agent.moves import workload
from pgo_agent.agent.moves.launch_sites import Config, numbers
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.record.baseline import BaselinePoint, TimeSource
from pgo_agent.agent.run.record.candidate import BuildKey, Candidate
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.shipped_configurations import AUTOTUNED
from pgo_agent.sandbox import json_codec
from pgo_agent.sandbox.bundle.documents import Static
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.judge.references import PlanRef, Side, bundle_ref, plan_ref
from pgo_agent.sandbox.judge.timing import bootstrap

SHIPPED = "shipped"
NEAR = 0.005  # of the best time: an H200's sessions measured a kernel against itself up to 0.6 % apart


def name(ctx: Context) -> str:
    """Return the id of the accepted candidate that no accepted one was measured against, or `shipped`."""
    return among(ctx.store.candidates(ctx.run.id))


def among(candidates: Iterable[Candidate]) -> str:
    """Return the same for the candidates of a run.

    Given files may be measured side by side against the same kernel: then the fastest counts.
    """
    accepted = [c for c in candidates if c.verdict == Verdict.ACCEPTED]
    beaten = {c.against for c in accepted}
    last = [c for c in accepted if c.id not in beaten]
    return max(last, key=lambda c: (c.generation, c.speedup or 0.0)).id if last else SHIPPED


def source(ctx: Context) -> str:
    """Return the kernel file of the incumbent."""
    return python(ctx, name(ctx))


def python(ctx: Context, which: str) -> str:
    """Return the kernel file of `shipped` or a candidate; for TTGIR, the file whose kernel it replaces."""
    return kernel_file(ctx.store, ctx.run.id, which, ctx.target.source)


def kernel_file(store: Store, run: str, which: str, shipped: str) -> str:
    """Return the same, of a run that is not open. `shipped`: the target's text."""
    if which == SHIPPED:
        return shipped
    candidate = store.candidate(run, which)
    return kernel_file(store, run, candidate.parent, shipped) if candidate.kind == "ttgir" else candidate.source


def side(ctx: Context, which: str) -> Side:
    """Return case -> plan for the judge to launch, of a baseline or an accepted candidate."""
    if which in (SHIPPED, "tuned", AUTOTUNED):
        best = ctx.baseline().best(which).items()
        return {c: plan_ref(ctx.store.contents, p.bundle, p.choice) for c, p in best}
    candidate = ctx.store.candidate(ctx.run.id, which)
    bundle = bundle_ref(ctx.store.contents, candidate.build.bundle)
    return {c: PlanRef(bundle, label) for c, label in chosen(ctx.store, candidate).items()}


def chosen(store: Store, candidate: Candidate) -> dict[str, str]:
    """Return case -> label of the configuration that the judge chose; without a judge, the first."""
    bodies = store.evidence(candidate.run, candidate.id).values()
    judged = json_codec.from_json(dict[str, str], next((b["choices"] for b in bodies if "choices" in b), {}))
    return {case: judged.get(case, options[0].label) for case, options in candidate.build.choices.items()}


def best_known(ctx: Context, which: str) -> dict[str, moves.Best]:
    """Return public case -> best known configuration: of the tuned baseline for `shipped`, else of a candidate. A case
    in which torch operators alone run has none."""
    base = ctx.baseline()
    if which == SHIPPED:
        statics = {p.plan_id: p.statics for p in base.points}
        return {
            c: _best(ctx, numbers(p.config), statics[p.plan_id], p.bundle, c, p.choice, stands, near(base.points, p))
            for c, p in base.tuned.items()
            for stands in [c in base.shipped and base.shipped[c].config == p.config]
            if statics[p.plan_id]
        }
    candidate = ctx.store.candidate(ctx.run.id, which)
    labels, built = chosen(ctx.store, candidate), candidate.build
    options = {c: built.choice(c, labels[c]) for c in base.cases}
    known = {c: (numbers(o.config), built.statics_of(o), built.bundle, c, o.label) for c, o in options.items()}
    return {c: _best(ctx, *what, standing=True) for c, what in known.items() if what[1]}


def near(points: Sequence[BaselinePoint], best: BaselinePoint) -> tuple[Config, ...]:
    """Return the configurations that a sweep timed beside the best one of their case, within NEAR of its time."""
    if best.how is TimeSource.ESTIMATE or best.apart:
        return ()
    rivals = (p for p in points if p.case == best.case and p.how is best.how and not p.apart)
    tied = [p for p in rivals if not p.problem and p.ms and p.ms <= best.time * (1 + NEAR)]
    return tuple(numbers(p.config) for p in sorted(tied, key=lambda p: p.time) if p.plan_id != best.plan_id)


def _best(
    ctx: Context,
    config: Config,
    statics: Sequence[Static],
    bundle: str,
    case: str,
    label: str,
    standing: bool,
    tied: tuple[Config, ...] = (),
) -> moves.Best:
    manifest = ctx.store.contents.manifest(bundle)
    plan, by_name = manifest["plans"][case][label], {s["name"]: s for s in statics}
    blocks, by_key = dict[str, int](), dict[str, Static]()
    for step in (s for s in plan["steps"] if "kernel" in s):
        name = manifest["kernels"][step["kernel"]]["name"]
        blocks[name] = max(blocks.get(name, 0), math.prod(step["grid"]))
        by_key[step["kernel"]] = by_name[name]
    main = workload.hardest([plan], manifest["kernels"], by_key)[0]
    return moves.Best(config, by_name[main], by_name, blocks, tied, standing)


def known_configs(ctx: Context) -> list[Config]:
    """Return the configurations that need no proposal: those of the grid and of built candidates."""
    points = [numbers(p.config) for p in ctx.baseline().points]
    built = (c for c in ctx.store.candidates(ctx.run.id) if c.bundle)
    return [*points, *(config for c in built for config in _configs(c.build_key))]


@lru_cache(maxsize=16384)
def _configs(of: BuildKey) -> tuple[Config, ...]:
    """Return the configurations of a build: each later proposal is compared with them."""
    every = [numbers(o.config) for options in of.build.choices.values() for o in options]
    return tuple(c for i, c in enumerate(every) if c not in every[:i])  # most cases have the same


def gains(evidence: Mapping[str, Any], over: str = "incumbent") -> dict[str, float]:
    """Return case -> speedup of a candidate over its incumbent, by the last stage that timed it.

    `over`: another side that was timed beside it; empty if that stage did not time it.
    """
    return {case: bootstrap.middle(t[over], t["candidate"]) for case, t in _samples(evidence).items() if over in t}


def _samples(evidence: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return case -> side -> ms of each round, of the last stage that timed a candidate."""
    samples = evidence.get("samples", {})
    found: Mapping[str, Any] = samples.get("time") or samples.get("quick") or {}
    return found


def call_times(ctx: Context, which: str) -> dict[str, float]:
    """Return case -> ms of a call of `shipped`, tuned, or of a candidate; only of cases that this run timed."""
    if which == SHIPPED:
        return {c: p.time for c, p in ctx.baseline().tuned.items() if p.how is TimeSource.MEASURED}
    samples = _samples(ctx.store.evidence(ctx.run.id, which))
    return {case: statistics.median(t["candidate"]) for case, t in samples.items()}


def plans(ctx: Context, which: str) -> dict[str, set[str]]:
    """Return case -> ids of the plans that `shipped` or a candidate brings."""
    base = ctx.baseline()
    if which == SHIPPED:
        return {case: {base.shipped[case].plan_id} for case in base.cases}
    options = ctx.store.candidate(ctx.run.id, which).build.choices
    return {case: {o.plan_id for o in options[case]} for case in base.cases}
