"""What a candidate is put through once it is built: the stages on the GPU, or Triton's interpreter without one.

On the GPU a candidate that may be recorded as faster goes through three processes: one that measures it, one that runs
its sanitized twin, one that knows nothing of the first and confirms it. All of a generation are measured against the
incumbent that it began with, so that their order does not matter, nor how many GPUs there are: each comparison is made
on one, and says on which.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from typing import Any

from pgo_agent.agent.evaluation import build, given_file, interpreter, safety_checks, screen
from pgo_agent.agent.evaluation.safety_checks import bundle_of, the_gpu
from pgo_agent.agent.exit_codes import FAULTY
from pgo_agent.agent.run import incumbent, provenance
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.record.candidate import Candidate
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.sandbox.build import variants
from pgo_agent.sandbox.build.variants import VariantBuild
from pgo_agent.sandbox.gate import edit_kind, program_order
from pgo_agent.sandbox.gate.evidence import Evidence, side
from pgo_agent.sandbox.gate.reason import plain, quoted
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict
from pgo_agent.sandbox.judge.gpu_judge import bundle_ref
from pgo_agent.sandbox.judge.interface import Busy, Judge

PROCESSES = 2  # that a candidate which may be accepted needs after the first: it is raced, and confirmed
Outcome = tuple[Judgement, float | None]  # a verdict, and the speedup over the incumbent, if one was measured
_NOT_FASTER = {Verdict.SLOWER, Verdict.UNDECIDED}  # as far as the clock can tell
_FINE = {Verdict.CHECKED, Verdict.BUILT, *_NOT_FASTER}  # nothing is known to be wrong
PROOF = ("race", "memcheck", "assembler", "confirm")  # the stages that `proved` may end with


def in_interpreter(ctx: Context, candidate: Candidate) -> Outcome:
    if candidate.kind == "ttgir":
        why = plain("it compiles; Triton's interpreter does not run TTGIR")
        return Judgement(Verdict.BUILT, "interpreter", why), None
    foreign = provenance.foreign(ctx, candidate)
    ctx.builder.box.admit(foreign)  # it may have been built where a sandbox works
    judged = interpreter.judged(ctx, candidate.source, candidate.build.bundle, foreign)
    refused = build.complete(ctx, candidate)[1] if judged.verdict not in FAULTY else None
    return refused or _as_far_as_it_tells(ctx, candidate, judged), None


def _as_far_as_it_tells(ctx: Context, candidate: Candidate, judged: Judgement) -> Judgement:
    """Right in the interpreter is no more than built where it matters in which order programs run."""
    if judged.verdict != Verdict.CHECKED:
        return judged
    manifest = ctx.store.contents.manifest(candidate.build.bundle)
    why = program_order.handing_on(side(ctx.store.contents, manifest).texts.values())
    words = f"{why}: what the interpreter finds, which runs one after another, proves nothing; "
    return replace(judged, verdict=Verdict.BUILT, why=quoted(words) + judged.why) if why else judged


def told_apart(ctx: Context, candidate: Candidate, judged: Judgement) -> Judgement:
    """Says of a given candidate with nothing wrong when it is no other kernel than the target."""
    known = screen.known_code(ctx, candidate)
    if candidate.kind != "ttgir" and given_file.same(candidate.source, ctx.target.source):
        known = Judgement(Verdict.NO_CHANGE, "", plain("it holds the same statements as the target"))
    if known is None or known.verdict != Verdict.NO_CHANGE or judged.verdict not in _FINE:
        return judged
    verdict = Verdict.NO_CHANGE if _right(judged) else judged.verdict  # what is no other code is not right for that
    return replace(judged, verdict=verdict, why=known.why + plain("; ") + judged.why)


def _right(judged: Judgement) -> bool:
    """Whether somebody found its results right; of what the clock alone could not tell a GPU has."""
    return judged.verdict in (Verdict.CHECKED, Verdict.SLOWER) or judged.stage in ("time", "confirm")


# on the GPU -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class First:
    """What the first process said of a candidate."""

    judged: Judgement
    stands: bool = True  # if not, it is to be `proved`


class Compiling:
    """Sanitized twins, each compiled once, however often a judge elsewhere has their candidates' judging begun."""

    def __init__(self, compilers: Executor) -> None:
        self._compilers, self._lock = compilers, threading.Lock()
        self._twins: dict[tuple[str, frozenset[tuple[str, str]]], Future[VariantBuild]] = {}

    def twin(self, ctx: Context, bundle: str, labels: Mapping[str, str]) -> Future[VariantBuild]:
        with self._lock:
            key = bundle, frozenset(labels.items())
            if key not in self._twins:
                self._twins[key] = self._compilers.submit(variants.sanitized, ctx.builder, bundle, labels)
            return self._twins[key]


def first(ctx: Context, candidate: Candidate) -> First:
    """`look`, unless its answer would take as long as that to everything, then `measured`."""
    looked = None if the_gpu(ctx).by_hand else look(ctx, candidate)
    if looked is None or looked.verdict == Verdict.CHECKED:
        return measured(ctx, candidate)
    return First(looked)


def look(ctx: Context, candidate: Candidate) -> Judgement | None:
    """What a few rounds of the public cases say: `checked` may be faster. None for what is built whole at once."""
    if candidate.build.whole:
        return None
    gpu, base = the_gpu(ctx), ctx.store.began_with(ctx.run.id, candidate.generation)
    return _told(gpu, base, gpu.verdict("look", candidate=_bundle(ctx, candidate), **_sides(ctx, base)))


def measured(ctx: Context, candidate: Candidate) -> First:
    """The first process. What would be accepted, or was given to be checked and is not wrong, does not stand yet."""
    gpu, base = the_gpu(ctx), ctx.store.began_with(ctx.run.id, candidate.generation)
    candidate, refused = build.complete(ctx, candidate)
    if refused:
        return First(refused)
    found = _told(gpu, base, gpu.verdict("judge", candidate=_bundle(ctx, candidate), **_sides(ctx, base)))
    given = candidate.author == provenance.GIVEN
    if found.verdict != Verdict.ACCEPTED and not (given and found.verdict in _NOT_FASTER):
        return First(found)
    if differs := _other_bits(ctx, candidate, found.evidence["choices"]):
        return First(Judgement(Verdict.WRONG, "numerics", quoted(differs), found.evidence))
    return First(found, stands=False)


def prepare(ctx: Context, candidate: Candidate, first: Judgement, compiling: Compiling) -> None:
    """Has what the proof of a candidate needs begun: its processes, and its twin."""
    the_gpu(ctx).prepare(PROCESSES)
    _twin(ctx, candidate, first, compiling)


def _twin(ctx: Context, candidate: Candidate, first: Judgement, compiling: Compiling) -> Future[VariantBuild]:
    return compiling.twin(ctx, bundle_of(candidate), safety_checks.raced(ctx, candidate, first.evidence["choices"]))


def proved(ctx: Context, candidate: Candidate, first: Judgement, compiling: Compiling) -> Outcome:
    """Races what does not stand yet, and confirms it.

    Raises Busy where all candidates are judged by one thread, and the twin of this one is not compiled yet.
    """
    twin = _twin(ctx, candidate, first, compiling)
    if the_gpu(ctx).elsewhere and not twin.done():
        raise Busy
    futures.wait([twin])  # before a GPU is held
    with the_gpu(ctx).turn():
        the_gpu(ctx).prepare(PROCESSES)  # of this GPU, which may be another one than measured it
        return _proved(ctx, candidate, first, twin)


def _proved(ctx: Context, candidate: Candidate, first: Judgement, twin: Future[VariantBuild]) -> Outcome:
    choices = first.evidence["choices"]
    raced = safety_checks.race(ctx, candidate, choices, twin)
    first = _with(first, [*_stages(first), raced.as_json()])
    if raced.ends:
        return Judgement(raced.verdict or Verdict.RACE, raced.stage, raced.why, first.evidence), speedup(first)
    for check in _on_request(ctx.settings):
        said = check(ctx, candidate, choices)
        first = _with(first, [*_stages(first), said.as_json()])
        if said.ends:
            return Judgement(said.verdict or Verdict.WRONG, said.stage, said.why, first.evidence), speedup(first)
    bundle = _bundle(ctx, candidate)
    again = {c: bundle | {"choice": label} for c, label in choices.items()}
    # in a new process: it never saw the first run
    sides = _sides(ctx, ctx.store.began_with(ctx.run.id, candidate.generation))
    confirmed = the_gpu(ctx).verdict("confirm", candidate=again, **sides)
    return _confirmed(first, _on(the_gpu(ctx), confirmed))


def _on_request(settings: RunSettings) -> Iterator[Callable[[Context, Candidate, dict[str, str]], Evidence]]:
    """The checks that only some runs are asked for."""
    if settings.memcheck:
        yield safety_checks.memchecked
    if settings.second_assembler:
        yield safety_checks.reassembled


def passed_over(judged: Judgement, why: str) -> Judgement:
    """What is said of a candidate that was looked at, or measured, and is not proved."""
    looked = judged.verdict == Verdict.CHECKED
    stage, said = ("time", " at a first look; not measured") if looked else ("confirm", "; neither raced nor confirmed")
    whole = judged.why + plain(f"{said}: {why}")
    last = Evidence(stage, Verdict.UNDECIDED, whole).as_json()
    return replace(_with(judged, [*_stages(judged), last]), verdict=Verdict.UNDECIDED, stage=stage, why=whole)


def _other_bits(ctx: Context, candidate: Candidate, choices: dict[str, str]) -> str:
    """Why a TTGIR edit that only moves ops is wrong: it must give the very bits of the text that it replaces."""
    built, base = candidate.build, ctx.baseline()
    edit = next((s.found.get("edit") for s in built.stages if s.stage == "inspect"), "")
    own = built.replaced.get("bundle")
    if edit != edit_kind.SCHEDULE or not own or base.nondeterministic:
        return ""
    sides = {n: bundle_ref(ctx.store.contents, b) for n, b in (("candidate", bundle_of(candidate)), ("own", own))}
    picks = {n: {c: {"bundle": b, "choice": choices[c]} for c in base.cases} for n, b in sides.items()}
    case = the_gpu(ctx).ask("same_bits", public=base.cases, **picks)["differs"]
    return (
        f"{case}: the edit moves ops alone, and the results are not the bits of the kernel's own text" if case else ""
    )


def _confirmed(first: Judgement, confirmed: Judgement) -> Outcome:
    stages = [*_stages(first), *_stages(confirmed)]
    evidence = {**first.evidence, "again": confirmed.evidence, "stages": stages}
    covered = first.coverage + confirmed.coverage
    if first.verdict in _NOT_FASTER and confirmed.verdict in {Verdict.ACCEPTED, *_NOT_FASTER}:
        return replace(first, evidence=evidence), speedup(first)  # right, and not faster at the first look
    if confirmed.verdict != Verdict.ACCEPTED:
        why = plain("not confirmed: ") + confirmed.why
        return Judgement(confirmed.verdict, "confirm", why, evidence), None
    return Judgement(Verdict.ACCEPTED, "confirm", confirmed.why, evidence, covered), speedup(confirmed)


def _sides(ctx: Context, against: str) -> dict[str, Any]:
    base = ctx.baseline()
    return {
        "incumbent": incumbent.side(ctx, against),
        "shipped": incumbent.side(ctx, incumbent.SHIPPED),
        "tuned": incumbent.side(ctx, "tuned"),
        "public": base.cases,
        "held_out": base.held_out,
        "weights": base.weights,
    }


def _bundle(ctx: Context, candidate: Candidate) -> dict[str, Any]:
    return {"bundle": bundle_ref(ctx.store.contents, bundle_of(candidate))}


def _told(gpu: Judge, against: str, judged: Judgement) -> Judgement:
    """With what it was measured against, and where."""
    return _on(gpu, replace(judged, evidence={**judged.evidence, "incumbent": against}))


def _on(gpu: Judge, judged: Judgement) -> Judgement:
    """With the GPU that answered this thread last; a judge may not tell."""
    found = safety_checks.taken_on(gpu)
    return replace(judged, evidence={**judged.evidence, "taken_on": found}) if found else judged


def _stages(judged: Judgement) -> list[dict[str, Any]]:
    return list(judged.evidence.get("stages", []))


def _with(judged: Judgement, stages: list[dict[str, Any]]) -> Judgement:
    return replace(judged, evidence={**judged.evidence, "stages": stages})


def speedup(judged: Judgement) -> float | None:
    """Over what it was measured against; None where nothing was."""
    found = judged.evidence.get("speedup")
    return float(found[1]) if found else None
