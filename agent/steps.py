"""What each node of the loop does. Every step can be repeated: what the store holds already is not done again."""

import hashlib
import itertools
import time
from collections.abc import Iterator, Sized
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from itertools import islice
from typing import Any

from pgo_agent.agent import asking, beam, check, incumbent, moves, ranking, screening
from pgo_agent.agent.context import Context
from pgo_agent.agent.store import Candidate
from pgo_agent.sandbox import target as contract
from pgo_agent.sandbox.build import Built
from pgo_agent.sandbox.gate.verdict import Judged, Verdict
from pgo_agent.sandbox.judge.pool import on_shelf

_FINE = {Verdict.CHECKED, Verdict.BUILT, Verdict.SLOWER}


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
    """Proposals that this run has not seen yet: what was given to it, or else the model's, then the embedded moves'."""
    given = check.proposals(ctx.settings)
    seen = {c.id for c in ctx.store.candidates(ctx.run.id)} | (set() if given else {candidate_id(ctx.target.source)})
    for p, author, parent in given or itertools.chain(asking.ask(ctx), beam.proposals(ctx)):
        name = candidate_id(p.source)
        if name not in seen and contract.same_contract(p.source, ctx.target.source):
            seen.add(name)
            yield asdict(p) | {"id": name, "author": author, "parent": parent}


def candidate_id(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()[:16]


# build ----------------------------------------------------------------------------------------------------------------


def build(ctx: Context, generation: int) -> None:
    """Traces and compiles the generation's candidates side by side; those that fail get their verdict here."""
    undecided = [c for c in ctx.store.candidates(ctx.run.id, generation) if c.verdict is None]
    waiting = [c for c in undecided if c.built is None]
    if waiting:
        ctx.emit("phase", phase="build", doing=f"tracing and compiling {_counted(waiting)}")
    with ThreadPoolExecutor(max(1, ctx.builder.cores)) as pool:
        tasks = {pool.submit(build_one, ctx, c): c for c in waiting}
        for task in as_completed(tasks):
            ctx.store.set_built(ctx.run.id, tasks[task].id, asdict(task.result()))
    for c in ctx.store.candidates(ctx.run.id, generation):
        judged = screening.verdict(ctx, c) if c.verdict is None else None
        if judged is not None:
            settle(ctx, c, judged, None, 0.0)


def build_one(ctx: Context, candidate: Candidate) -> Built:
    foreign = candidate.author != "embedded"
    if candidate.author == check.AUTHOR:
        built = ctx.builder.build(candidate.source, _cases(ctx), None, ctx.builder.cores, foreign=foreign)
        return check.narrowed(ctx, built)
    return ctx.builder.build(candidate.source, _cases(ctx), moves.CARRIED, foreign=foreign)


def _cases(ctx: Context) -> dict[str, list[str]]:
    base = ctx.baseline()
    return {s: [c.split("/", 1)[1] for c in base[k]] for s, k in (("CASES", "cases"), ("HELD_OUT", "held_out"))}


# judge ----------------------------------------------------------------------------------------------------------------


def judge(ctx: Context, generation: int) -> None:
    """Judges what was built and has no verdict, best static rank first; each verdict is recorded before the next."""
    waiting = [c for c in ctx.store.candidates(ctx.run.id, generation) if c.built is not None and c.verdict is None]
    if waiting:
        where = "on the GPU" if ctx.gpu else "in Triton's interpreter"
        ctx.emit("phase", phase="judge", doing=f"judging {_counted(waiting)} {where}")
    for candidate in sorted(waiting, key=lambda c: (ranking.rank(ctx, c), c.position)):
        if ctx.out_of_time():
            return
        started = time.monotonic()
        judged, speedup = _on_gpu(ctx, candidate) if ctx.gpu else (_in_interpreter(ctx, candidate), None)
        if candidate.author == check.AUTHOR:
            judged = _told_apart(ctx, candidate, judged)
        settle(ctx, candidate, judged, speedup, time.monotonic() - started)


def _in_interpreter(ctx: Context, candidate: Candidate) -> Judged:
    return ctx.cpu.verdict("check", source=candidate.source, foreign=candidate.author != "embedded")


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
    hasty = first.verdict == Verdict.SLOWER and first.stage == "quick"  # before its results were looked at in full
    if first.verdict != Verdict.ACCEPTED and not (hasty and candidate.author == check.AUTHOR):
        return first, _speedup(first)
    gpu.fresh()  # confirmed by a process that never saw the first run
    again = {c: bundle | {"choice": label} for c, label in first.evidence["choices"].items()}
    confirmed = gpu.verdict("confirm", candidate=again, **fields)
    if hasty:
        verdict = Verdict.SLOWER if confirmed.verdict == Verdict.ACCEPTED else confirmed.verdict
        evidence = {**first.evidence, **confirmed.evidence}
        return Judged(verdict, confirmed.stage, confirmed.reason, evidence), _speedup(confirmed)
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


def _told_apart(ctx: Context, candidate: Candidate, judged: Judged) -> Judged:
    """Says of a given candidate with nothing wrong when it is no other kernel than the target."""
    known = screening.known_code(ctx, candidate.built or {})
    if check.same(candidate.source, ctx.target.source):
        known = Judged(Verdict.NO_CHANGE, "", "it holds the same statements as the target")
    if known is None or known.verdict != Verdict.NO_CHANGE or judged.verdict not in _FINE:
        return judged
    return Judged(Verdict.NO_CHANGE, judged.stage, f"{known.reason}; {judged.reason}", judged.evidence)


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
        gpu_seconds=ctx.gpu_seconds(),
    )


def _counted(candidates: Sized) -> str:
    return f"{len(candidates)} candidate{'' if len(candidates) == 1 else 's'}"
