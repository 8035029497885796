"""The steps of the loop, one for each node. Each can be repeated: what the record holds already is not done again."""

from collections.abc import Collection, Iterable, Iterator, Sized
from concurrent.futures import as_completed
from dataclasses import replace
from functools import partial
from itertools import chain, islice

from pgo_agent.agent.evaluation import build as building
from pgo_agent.agent.evaluation import given_file, measure, ranking, schedule, screen
from pgo_agent.agent.evaluation.interpreter_turns import in_turns
from pgo_agent.agent.proposal import bandit, compiled_reference, lessons, llm, parents
from pgo_agent.agent.run import incumbent, provenance, steering
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.record.candidate import Candidate, NewCandidate, candidate_id
from pgo_agent.agent.run.settings import default_width
from pgo_agent.sandbox import target as contract
from pgo_agent.sandbox.gate.coverage import NOTHING
from pgo_agent.sandbox.gate.evidence import Evidence
from pgo_agent.sandbox.gate.reason import joined, of_json, plain
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.judge.interface import Judge
from pgo_agent.sandbox.judge.pool import GpuPool
from pgo_agent.sandbox.judge.spool.client import SpoolJudge
from pgo_agent.sandbox.threads import threads

# propose --------------------------------------------------------------------------------------------------------------


def propose(ctx: Context, generation: int) -> int:
    """Write the next generation's candidates into the record, and return their number."""
    present = ctx.store.candidates(ctx.run.id, generation)
    if present:
        return len(present)
    steering.begin(ctx, generation)
    ids = {c.id for c in ctx.store.candidates(ctx.run.id)}
    submitted = list(_novel(ctx, steering.submitted(ctx, generation), steering.AUTHOR, ids))  # beyond the budget
    room = min(_width(ctx), steering.room(ctx))
    others = (p for p in _fresh(ctx, generation) if p.id not in ids)
    fresh = [*submitted, *islice(others, room)]
    if fresh:
        ctx.store.add_generation(ctx.run.id, generation, incumbent.name(ctx), fresh)
        bandit.report_shares(ctx, generation)
        if again := parents.again_from(ctx):
            ctx.emit("search.restarted", generation=generation, candidates=again)
    for p in fresh:
        ctx.emit(
            "candidate.proposed",
            candidate=p.id,
            generation=generation,
            kind=p.kind,
            move=p.move,
            rationale=p.rationale,
            cites=p.cites,
            proposer=p.proposer,
            author=p.author,
        )
    return len(fresh)


def _width(ctx: Context) -> int:
    """Return how many candidates a generation has at most."""
    return ctx.settings.width or default_width(ctx.builder.cores)


def _fresh(ctx: Context, generation: int) -> Iterator[NewCandidate]:
    """Yield proposals that this run has not seen yet: the candidates given to it, or none where it is open to what is
    submitted; else an earlier winner, the model's repairs of its failed candidates, then what the model and the
    embedded moves propose, by turns."""
    if ctx.run.facts.open_to:
        return
    if candidates := given_file.proposals(ctx.run.facts.given):
        yield from _novel(ctx, candidates, provenance.GIVEN, {c.id for c in ctx.store.candidates(ctx.run.id)})
        return
    seen = {c.id for c in ctx.store.candidates(ctx.run.id)} | {candidate_id(ctx.target.source)}
    yield from _novel(ctx, lessons.remembered(ctx), lessons.MEMORY, seen)
    repairs = _novel(ctx, llm.propose_repairs(ctx), bandit.MODEL, seen)
    yield from islice(repairs, max(1, _width(ctx) - 1))  # one place is left for a new proposal
    streams = {bandit.MODEL: _novel(ctx, llm.propose_fresh(ctx), bandit.MODEL, seen)}
    if not ctx.settings.controlled:
        moves = chain(compiled_reference.proposals(ctx), parents.proposals(ctx))
        streams[bandit.MOVES] = _novel(ctx, moves, bandit.MOVES, seen)
    yield from bandit.mixed(streams, bandit.tallies(ctx), ctx.settings.seed, generation)


def _novel(ctx: Context, proposals: Iterable[NewCandidate], proposer: str, seen: set[str]) -> Iterator[NewCandidate]:
    """Yield proposals that keep the contract and are not in `seen`, which grows, in the proposer's name."""
    for p in proposals:
        if p.id not in seen and (p.kind == "ttgir" or contract.same_contract(p.source, ctx.target.source)):
            seen.add(p.id)
            yield replace(p, proposer=proposer)


# build ----------------------------------------------------------------------------------------------------------------


def build(ctx: Context, generation: int) -> None:
    """Trace and compile the generation's candidates side by side; those that fail get their verdict here."""
    apply_requests(ctx)
    undecided = [c for c in ctx.store.candidates(ctx.run.id, generation) if c.verdict is None]
    waiting = [c for c in undecided if c.built is None]
    if waiting:
        ctx.emit("phase", phase="build", doing=f"tracing and compiling {_counted(waiting)}")
    with threads(max(1, ctx.builder.cores)) as pool:
        workers = max(1, ctx.builder.cores // max(1, len(waiting)))
        tasks = {pool.submit(building.first, ctx, c, workers): c for c in waiting}
        for n, task in enumerate(as_completed(tasks), 1):
            ctx.store.set_built(ctx.run.id, tasks[task].id, task.result())
            if n < len(tasks):
                ctx.emit("progress", said=f"built {n} of {_counted(waiting)}")
    apply_requests(ctx)
    for c in ctx.store.candidates(ctx.run.id, generation):
        judged = screen.verdict(ctx, c) if c.verdict is None else None
        if judged is not None:
            settle(ctx, c, judged, None, 0.0)


# judge ----------------------------------------------------------------------------------------------------------------


def judge(ctx: Context, generation: int) -> None:
    """Judge what was built and has no verdict, best static rank first; each verdict is recorded as it comes."""
    apply_requests(ctx)
    waiting = [c for c in ctx.store.candidates(ctx.run.id, generation) if c.built is not None and c.verdict is None]
    if waiting:
        ctx.emit("phase", phase="judge", doing=f"judging {_counted(waiting)} {_where(ctx.gpu)}")
    waiting.sort(key=lambda c: (ranking.rank(ctx, c), c.position))
    begun = set[str]()
    more = partial(_goes_on, ctx, begun)
    outcomes = schedule.outcomes(ctx, ctx.gpu, waiting, more, begun) if ctx.gpu else in_turns(ctx, waiting, more, begun)
    for name, outcome in outcomes:
        candidate = ctx.store.candidate(ctx.run.id, name)
        if candidate.verdict is None:
            _settle_judged(ctx, candidate, *outcome)


def _where(gpu: Judge | None) -> str:
    if isinstance(gpu, SpoolJudge):
        return f"on a GPU elsewhere, by {gpu.folder.root}"
    several = len(gpu.all) if isinstance(gpu, GpuPool) else 1
    return "in Triton's interpreter" if gpu is None else f"on {several} GPUs" if several > 1 else "on the GPU"


def _goes_on(ctx: Context, begun: Collection[str] = ()) -> bool:
    """Return whether there is time for another candidate, after a person's new requests."""
    apply_requests(ctx, begun)
    return not ctx.out_of_time()


def _settle_judged(
    ctx: Context, candidate: Candidate, judged: Judgement, speedup: float | None, seconds: float
) -> None:
    """Settle a judged candidate; that of a given file says how much of its list was judged."""
    if candidate.author == provenance.GIVEN:
        judged = given_file.note_unjudged(ctx, candidate, measure.note_unchanged(ctx, candidate, judged))
    settle(ctx, candidate, judged, speedup, seconds)


def apply_requests(ctx: Context, begun: Collection[str] = ()) -> None:
    """Apply a person's new requests that need not wait for a generation: see steering.py.

    `begun`: candidates that are being judged: they keep the verdict that they get.
    """
    for request, candidate, judged in steering.look(ctx, begun):
        settle(ctx, candidate, judged, None, 0.0)
        steering.vetoed(ctx, request)


def settle(ctx: Context, candidate: Candidate, judged: Judgement, speedup: float | None, seconds: float) -> None:
    """Record a verdict with the evidence of every stage, and emit it."""
    stages = _stages(candidate, judged, seconds)
    open_ = [s for s in stages if s["verdict"] == Verdict.UNDECIDED and judged.verdict != Verdict.UNDECIDED]
    doubts = (plain(f"{s['stage']} could not decide: ") + of_json(s) for s in open_)
    beside = [plain(contract.AS_IT_STOOD)] if ctx.target.of_original and judged.coverage != NOTHING else []
    why = joined("; ", [judged.why, *doubts, *beside])
    covered = {} if judged.coverage == NOTHING else {"coverage": judged.coverage.as_json()}
    judged = replace(judged, why=why, evidence={**judged.evidence, "stages": stages, **covered})
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
        stages=[{k: v for k, v in s.items() if k not in ("found", "why")} for s in stages],
        coverage=judged.coverage.as_json(),
    )


def _stages(candidate: Candidate, judged: Judgement, seconds: float) -> list[JsonObject]:
    """Return the evidence of every stage that looked at a candidate, in order; the last one gave the verdict."""
    stages = [s.as_json() for s in candidate.built.stages] if candidate.built else []
    outcome = {"verdict": str(judged.verdict), "reason": judged.reason, "why": judged.why.as_json()}
    if any(s["stage"] == judged.stage for s in stages):
        return [s | outcome if s["stage"] == judged.stage else s for s in stages]
    last = Evidence(judged.stage, judged.verdict, judged.why, seconds, coverage=judged.coverage).as_json()
    return [*stages, *(judged.stages or [last])]


def _counted(candidates: Sized) -> str:
    return f"{len(candidates)} candidate{'' if len(candidates) == 1 else 's'}"
