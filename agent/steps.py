"""What each node of the loop does. Every step can be repeated: what the store holds already is not done again."""

import hashlib
import itertools
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from itertools import islice
from typing import Any

from pgo_agent.agent import asking, baseline, incumbent, moves, static_rank
from pgo_agent.agent.context import Context
from pgo_agent.agent.store import Candidate
from pgo_agent.sandbox import target as contract
from pgo_agent.sandbox.build import Built
from pgo_agent.sandbox.gate import screen
from pgo_agent.sandbox.gate.verdict import Judged, Verdict
from pgo_agent.sandbox.judge.pool import on_shelf

KNOWN_GAIN = 0.003  # a known gain below it is not worth judging: the judge would not call it one
_FAILED = {"timeout": Verdict.TIMEOUT, "rejected": Verdict.REJECTED}


# propose --------------------------------------------------------------------------------------------------------------


def propose(ctx: Context, generation: int) -> int:
    """Writes the next generation's candidates into the store; gives their number."""
    present = ctx.store.candidates(ctx.run.id, generation)
    if present:
        return len(present)
    room = ctx.settings["candidates"] - len(ctx.store.candidates(ctx.run.id))
    fresh = list(islice(_fresh(ctx), max(0, min(ctx.settings["width"], room))))
    if fresh:
        ctx.store.add_generation(ctx.run.id, generation, incumbent.name(ctx), fresh)
    for p in fresh:
        ctx.emit(
            "candidate.proposed",
            candidate=p["id"],
            generation=generation,
            kind=p["kind"],
            move=p["move"],
            rationale=p["rationale"],
        )
    return len(fresh)


def _fresh(ctx: Context) -> Iterator[dict[str, Any]]:
    """Proposals that this run has not seen yet: the model's first, if there is one, then the embedded moves'."""
    seen = {c.id for c in ctx.store.candidates(ctx.run.id)} | {candidate_id(ctx.target.source)}
    for p, author in itertools.chain(asking.ask(ctx), _embedded(ctx)):
        name = candidate_id(p.source)
        if name not in seen and contract.same_contract(p.source, ctx.target.source):
            seen.add(name)
            yield asdict(p) | {"id": name, "author": author}


def _embedded(ctx: Context) -> Iterator[tuple[moves.Proposal, str]]:
    """The embedded moves' proposals. Moves that do not apply are recorded with their reasons."""
    parent = incumbent.name(ctx)
    found = moves.propose(incumbent.source(ctx), incumbent.best_known(ctx), incumbent.known_configs(ctx), ctx.device)
    for p in found:
        if isinstance(p, moves.Skipped):
            ctx.store.add_skipped(ctx.run.id, parent, p.move, p.reason)
        else:
            yield p, "embedded"


def candidate_id(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()[:16]


# build ----------------------------------------------------------------------------------------------------------------


def build(ctx: Context, generation: int) -> None:
    """Traces and compiles the generation's candidates side by side; those that fail get their verdict here."""
    undecided = [c for c in ctx.store.candidates(ctx.run.id, generation) if c.verdict is None]
    waiting = [c for c in undecided if c.built is None]
    if waiting:
        ctx.emit("phase", phase="build", doing=f"tracing and compiling {len(waiting)} candidates")
    with ThreadPoolExecutor(max(1, ctx.builder.cores)) as pool:
        tasks = {pool.submit(_build, ctx, c): c for c in waiting}
        for task in as_completed(tasks):
            ctx.store.set_built(ctx.run.id, tasks[task].id, asdict(task.result()))
    for c in ctx.store.candidates(ctx.run.id, generation):
        judged = _before_gpu(ctx, c) if c.verdict is None else None
        if judged is not None:
            settle(ctx, c, judged, None, 0.0)


def _build(ctx: Context, candidate: Candidate) -> Built:
    foreign = candidate.author != "embedded"
    return ctx.builder.build(candidate.source, _cases(ctx), moves.CARRIED, foreign=foreign)


def _cases(ctx: Context) -> dict[str, list[str] | None]:
    return {"CASES": [c.split("/", 1)[1] for c in ctx.baseline()["cases"]], "HELD_OUT": None}


def _before_gpu(ctx: Context, candidate: Candidate) -> Judged | None:
    """A verdict that needs no GPU: build failures, forbidden ops, known code, dominated by the static profile."""
    base, built = ctx.baseline(), candidate.built or {}
    missing = [c for c in (*base["cases"], *base["held_out"]) if c not in built["choices"]]
    if not built["bundle"] or missing:
        failures = [f for f in built["failures"] if not missing or f["case"] in missing or not f["case"]]
        failure = failures[0] if failures else {"kind": "build_error", "message": "nothing was built", "case": ""}
        held_out = failure["case"].startswith("HELD_OUT")
        reason = "fails to build for a held-out case" if held_out else _first_line(failure["message"])
        return Judged(_FAILED.get(failure["kind"], Verdict.BUILD_ERROR), "build", reason)
    refused = screen.screen(ctx.store.shelf.manifest(built["bundle"]), set(base["allowed_ops"]))
    return refused or _known_code(ctx, built, base) or _dominated(built, base)


def _known_code(ctx: Context, built: Mapping[str, Any], base: Mapping[str, Any]) -> Judged | None:
    """Nothing new: all its code was in the baselines' grid, and what is known of it does not beat the incumbent."""
    known = {(p["case"], p["plan_id"]): p["ms"] for p in base["points"] if not p["problem"]}
    brought = {case: [c["plan_id"] for c in built["choices"][case]] for case in base["cases"]}
    now = incumbent.plans(ctx)
    if not all((case, plan) in known for case in base["cases"] for plan in brought[case]):
        return None
    if built["failures"]:
        return Judged(Verdict.BUILD_ERROR, "build", _first_line(built["failures"][0]["message"]))
    if not all((case, plan) in known for case in base["cases"] for plan in now[case]):
        return None

    def best(case: str, plans: Iterable[str]) -> float:
        return float(min(known[case, p] for p in plans))

    gain = statistics.geometric_mean(best(c, now[c]) / best(c, brought[c]) for c in base["cases"])
    if gain > 1 + KNOWN_GAIN:
        return None
    return Judged(Verdict.NO_CHANGE, "build", "its code is that of configurations which are known and no faster")


def _dominated(built: Mapping[str, Any], base: Mapping[str, Any]) -> Judged | None:
    """Static pruning: every new configuration of every case spills or serializes where the best known does not."""
    reasons = []
    for case in base["cases"]:
        known = {p["plan_id"] for p in base["points"] if p["case"] == case}
        best = next(p["statics"] for p in base["points"] if p["plan_id"] == base["tuned"][case]["plan_id"])
        for choice in (c for c in built["choices"][case] if c["plan_id"] not in known):
            pairs = zip((built["statics"][k] for k in choice["kernels"]), best, strict=False)
            reasons.append(next((r for ours, theirs in pairs if (r := static_rank.dominated(ours, theirs))), ""))
    if reasons and all(reasons):
        return Judged(Verdict.SLOWER, "static", f"pruned before GPU time: {reasons[0]}")
    return None


# judge ----------------------------------------------------------------------------------------------------------------


def judge(ctx: Context, generation: int) -> None:
    """Judges what was built and has no verdict, best static rank first; each verdict is recorded before the next."""
    waiting = [c for c in ctx.store.candidates(ctx.run.id, generation) if c.built is not None and c.verdict is None]
    if waiting:
        where = "on the GPU" if ctx.gpu else "in Triton's interpreter"
        ctx.emit("phase", phase="judge", doing=f"judging {len(waiting)} candidates {where}")
    for candidate in sorted(waiting, key=lambda c: (rank(ctx, c), c.position)):
        if ctx.out_of_time():
            return
        started = time.monotonic()
        judged, speedup = (
            _on_gpu(ctx, candidate) if ctx.gpu else (ctx.cpu.verdict("check", source=candidate.source), None)
        )
        settle(ctx, candidate, judged, speedup, time.monotonic() - started)


def rank(ctx: Context, candidate: Candidate) -> float:
    """Known or estimated time over the tuned baseline's: geometric mean over the cases where it brings anything new."""
    ratios = [best["ms"] / ctx.baseline()["tuned"][case]["ms"] for case, best in novel(ctx, candidate).items()]
    return statistics.geometric_mean(ratios) if ratios else 1.0


def novel(ctx: Context, candidate: Candidate) -> dict[str, dict[str, Any]]:
    """Case -> what is known of the best configuration that the candidate adds to those of the baselines."""
    base, built = ctx.baseline(), candidate.built or {}
    manifest = ctx.store.shelf.manifest(built["bundle"])
    measured = {p["plan_id"] for p in base["points"]}
    found = {}
    for case in base["cases"]:
        options = [o for o in built["choices"][case] if o["plan_id"] not in measured]
        told = [
            {"choice": o["label"]}
            | baseline.known(
                ctx, manifest, case, o["label"], o["plan_id"], [built["statics"][k] for k in o["kernels"]], base["work"]
            )
            for o in options
        ]
        if told:
            found[case] = min(told, key=lambda o: (o["how"] == "estimate", o["ms"]))
    return found


def _on_gpu(ctx: Context, candidate: Candidate) -> tuple[Judged, float | None]:
    gpu, base = ctx.gpu, ctx.baseline()
    if gpu is None or candidate.built is None:
        raise RuntimeError("nothing to judge with")
    bundle = {"bundle": on_shelf(ctx.store.shelf, candidate.built["bundle"])}
    fields: dict[str, Any] = {
        "incumbent": incumbent.side(ctx, incumbent.name(ctx)),
        "shipped": incumbent.side(ctx, incumbent.SHIPPED),
        "tuned": incumbent.side(ctx, "tuned"),
        "public": base["cases"],
        "held_out": base["held_out"],
        "weights": base["weights"],
    }
    first = gpu.verdict("judge", candidate=bundle, **fields)
    if first.verdict != Verdict.ACCEPTED:
        return first, _speedup(first)
    gpu.fresh()  # confirmed by a process that never saw the first run
    again = {c: bundle | {"choice": label} for c, label in first.evidence["choices"].items()}
    confirmed = gpu.verdict("confirm", candidate=again, **fields)
    if confirmed.verdict != Verdict.ACCEPTED:
        return Judged(
            confirmed.verdict,
            "confirm",
            f"not confirmed: {confirmed.reason}",
            {**first.evidence, "again": confirmed.evidence},
        ), None
    return Judged(
        Verdict.ACCEPTED, "confirm", confirmed.reason, {**first.evidence, "again": confirmed.evidence}
    ), _speedup(confirmed)


def _speedup(judged: Judged) -> float | None:
    found = judged.evidence.get("speedup")
    return float(found[1]) if found else None


def settle(ctx: Context, candidate: Candidate, judged: Judged, speedup: float | None, seconds: float) -> None:
    """Records a verdict and tells of it."""
    ctx.store.set_verdict(ctx.run.id, candidate.id, judged, speedup, seconds)
    ctx.emit(
        "candidate.verdict",
        candidate=candidate.id,
        generation=candidate.generation,
        kind=candidate.kind,
        move=candidate.move,
        verdict=str(judged.verdict),
        stage=judged.stage,
        reason=judged.reason,
        speedup=speedup,
        seconds=round(seconds, 3),
    )


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line.lower()), lines[0] if lines else "")[:300]
