"""What is known of a candidate's speed before it is judged: a recording of its very code, or an estimate.

Orders the judging of a generation, the parents of the next one, and the ranking on a machine without a GPU. Nothing
here is a measurement of this run.
"""

import statistics
from collections.abc import Mapping
from typing import Any

from pgo_agent.agent.evaluation import baseline
from pgo_agent.agent.profile import cost_model
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.record.store import Candidate


def rank(ctx: Context, candidate: Candidate) -> float:
    """What to order candidates by: what is known of them, or that nothing is."""
    found = relative(ctx, candidate)
    return 1.0 if found is None else found


def relative(ctx: Context, candidate: Candidate) -> float | None:
    """Known or estimated time over the tuned baseline's: geometric mean over the cases where it brings anything new.

    None where only an estimate could tell, of a rewrite or of another way to load tiles: estimates put configurations
    of one source in order, not one source before another.
    """
    base = ctx.baseline()
    tuned = {c: next(p for p in base["points"] if p["plan_id"] == t["plan_id"]) for c, t in base["tuned"].items()}
    ratios = [
        best["ms"] / tuned[case]["ms"]
        for case, best in novel(ctx, candidate).items()
        if best["how"] != "estimate" or (candidate.kind == "launch" and _alike(best, tuned[case]))
    ]
    return statistics.geometric_mean(ratios) if ratios else None


def _alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return cost_model.loading(one["statics"]) == cost_model.loading(other["statics"])


def novel(ctx: Context, candidate: Candidate) -> dict[str, dict[str, Any]]:
    """Case -> what is known of the best configuration that the candidate adds to those of the baselines."""
    base, built = ctx.baseline(), candidate.built or {}
    manifest = ctx.store.contents.manifest(built["bundle"])
    measured = {p["plan_id"] for p in base["points"]}
    found = {}
    for case in base["cases"]:
        options = [o for o in built["choices"][case] if o["plan_id"] not in measured]
        told = []
        for o in options:
            statics = [built["statics"][k] for k in o["kernels"]]
            known = baseline.known(ctx, manifest, case, o["label"], o["plan_id"], statics, base["work"])
            told.append({"choice": o["label"], "statics": statics} | known)
        if told:
            found[case] = min(told, key=lambda o: (o["how"] == "estimate", o["ms"]))
    return found
