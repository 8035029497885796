"""Judges a built candidate: by the stages on the GPU, or in Triton's interpreter without one.

On the GPU a candidate that may be recorded as faster goes through three processes: one measures it, one runs its
sanitized build, and a fresh one confirms it. All candidates of a generation are measured against the incumbent that it
began with, so neither their order nor the number of GPUs matters. Each comparison is made on one GPU, and names it.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace

from pgo_agent.agent.evaluation import build, given_file, interpreter, safety_checks, screen
from pgo_agent.agent.evaluation.safety_checks import bundle_of, the_gpu
from pgo_agent.agent.exit_codes import FAULTY
from pgo_agent.agent.kernel_part import kernel_part
from pgo_agent.agent.llm.replies import whole_kernel
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
from pgo_agent.sandbox.judge import questions
from pgo_agent.sandbox.judge.interface import Busy, Judge
from pgo_agent.sandbox.judge.questions import Against, Confirm, Look, SameBits
from pgo_agent.sandbox.judge.references import PlanRef, Whole, bundle_ref
from pgo_agent.sandbox.judge.timing import regression

PROCESSES = 2  # after the first, for a candidate that may be accepted: one races it, one confirms it
Outcome = tuple[Judgement, float | None]  # a verdict, and the speedup over the incumbent, if one was measured
_NOT_FASTER = {Verdict.SLOWER, Verdict.UNDECIDED}  # by the clock
_BY_TIME = {Verdict.ACCEPTED, Verdict.NOT_SLOWER, *_NOT_FASTER}
_FINE = {Verdict.CHECKED, Verdict.BUILT, *_NOT_FASTER}  # no fault is known
PROOF = ("race", "memcheck", "assembler", "confirm")  # the stages that `proved` may end with


def in_interpreter(ctx: Context, candidate: Candidate) -> tuple[Judgement, float]:
    """Return the verdict without a GPU, and the seconds that it took, without those before its turn."""
    if candidate.kind == "ttgir":
        why = plain("it compiles; Triton's interpreter does not run TTGIR")
        return Judgement(Verdict.BUILT, "interpreter", why), 0.0
    untrusted = provenance.untrusted(ctx, candidate)
    ctx.builder.box.admit(untrusted)  # it may have been built where a sandbox works
    with ctx.cpu.turn():
        began = time.monotonic()
        judged = interpreter.judged(ctx, candidate.source, candidate.build.bundle, untrusted)
    refused = build.complete(ctx, candidate)[1] if judged.verdict not in FAULTY else None
    return refused or _gluon(candidate, _limited(ctx, candidate, judged)), time.monotonic() - began


def _gluon(candidate: Candidate, judged: Judgement) -> Judgement:
    """Say that no case could have had a Gluon kernel compared here."""
    if judged.verdict != Verdict.BUILT or whole_kernel.kind(kernel_part(candidate.source)) != "gluon":
        return judged
    return replace(judged, why=judged.why + plain("; Gluon kernels are compared on a GPU alone"))


def _limited(ctx: Context, candidate: Candidate, judged: Judgement) -> Judgement:
    """`built` in place of `checked` if the order of programs matters: the interpreter runs them one after another."""
    if judged.verdict != Verdict.CHECKED:
        return judged
    manifest = ctx.store.contents.manifest(candidate.build.bundle)
    why = program_order.handing_on(side(ctx.store.contents, manifest).texts.values())
    words = f"{why}: what the interpreter finds, which runs one after another, proves nothing; "
    return replace(judged, verdict=Verdict.BUILT, why=quoted(words) + judged.why) if why else judged


def note_unchanged(ctx: Context, candidate: Candidate, judged: Judgement) -> Judgement:
    """Add to the verdict on a given candidate without a fault that it is the same kernel as the target, if it is."""
    if ctx.run.facts.against:
        return judged  # known code may be slower: a list that lacks its fastest configuration, say
    unchanged = screen.known_code(ctx, candidate)
    if candidate.kind != "ttgir" and given_file.same(candidate.source, ctx.target.source):
        unchanged = Judgement(Verdict.NO_CHANGE, "", plain("it holds the same statements as the target"))
    if unchanged is None or unchanged.verdict != Verdict.NO_CHANGE or judged.verdict not in _FINE:
        return judged
    verdict = Verdict.NO_CHANGE if _right(judged) else judged.verdict  # the same code is not right just for that
    return replace(judged, verdict=verdict, why=unchanged.why + plain("; ") + judged.why)


def _right(judged: Judgement) -> bool:
    """Whether its results were found right: if only the clock could not decide, a GPU has compared them."""
    return judged.verdict in (Verdict.CHECKED, Verdict.SLOWER) or judged.stage in ("time", "confirm")


# on the GPU -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class First:
    """The verdict of the first process on a candidate."""

    judged: Judgement
    stands: bool = True  # if not, it must be `proved`


class Compiling:
    """Sanitized builds. Each is compiled once, even if a judge elsewhere makes the judging begin again."""

    def __init__(self, compilers: Executor) -> None:
        self._compilers, self._lock = compilers, threading.Lock()
        self._builds: dict[tuple[str, frozenset[tuple[str, str]]], Future[VariantBuild]] = {}

    def sanitized(self, ctx: Context, bundle: str, labels: Mapping[str, str]) -> Future[VariantBuild]:
        with self._lock:
            key = bundle, frozenset(labels.items())
            if key not in self._builds:
                self._builds[key] = self._compilers.submit(variants.sanitized, ctx.builder, bundle, labels)
            return self._builds[key]


def first(ctx: Context, candidate: Candidate) -> First:
    """Look at a candidate, then measure it if it may be faster. If an answer takes days, measure at once."""
    looked = None if the_gpu(ctx).by_hand else look(ctx, candidate)
    if looked is None or looked.verdict == Verdict.CHECKED:
        return measured(ctx, candidate)
    return First(looked)


def look(ctx: Context, candidate: Candidate) -> Judgement | None:
    """Time a few rounds of the public cases: `checked` may be faster. None for a candidate that is built whole at
    once."""
    if candidate.build.whole:
        return None
    gpu, base = the_gpu(ctx), ctx.store.began_with(ctx.run.id, candidate.generation)
    return _with_incumbent(gpu, base, gpu.verdict(Look.of(_bundle(ctx, candidate), _against(ctx, base))))


def measured(ctx: Context, candidate: Candidate) -> First:
    """Run the first process. A verdict that would accept, or finds no fault in a given candidate, does not stand
    yet."""
    gpu, base = the_gpu(ctx), ctx.store.began_with(ctx.run.id, candidate.generation)
    candidate, refused = build.complete(ctx, candidate)
    if refused:
        return First(refused)
    judged = _with_incumbent(gpu, base, gpu.verdict(questions.Judge.of(_bundle(ctx, candidate), _against(ctx, base))))
    is_given = candidate.author == provenance.GIVEN
    if judged.verdict != Verdict.ACCEPTED and not (is_given and judged.verdict in _BY_TIME):
        return First(judged)
    if differs := _other_bits(ctx, candidate, judged.choices):
        return First(Judgement(Verdict.WRONG, "numerics", quoted(differs), judged.evidence))
    return First(judged, stands=False)


def prepare(ctx: Context, candidate: Candidate, first: Judgement, compiling: Compiling) -> None:
    """Start what the proof of a candidate needs: its processes, and its sanitized build."""
    the_gpu(ctx).prepare(PROCESSES)
    build_sanitized(ctx, candidate, first, compiling)


def build_sanitized(
    ctx: Context, candidate: Candidate, first: Judgement, compiling: Compiling
) -> Future[VariantBuild]:
    """Start the sanitized build of the configurations that were chosen, or return it where it is begun."""
    return compiling.sanitized(ctx, bundle_of(candidate), safety_checks.raced(ctx, candidate, first.choices))


def proved(ctx: Context, candidate: Candidate, first: Judgement, compiling: Compiling) -> Outcome:
    """Race and confirm a candidate whose verdict does not stand yet.

    Raises Busy if one thread judges all candidates and the sanitized build of this one is not compiled yet.
    """
    sanitized = build_sanitized(ctx, candidate, first, compiling)
    if the_gpu(ctx).elsewhere and not sanitized.done():
        raise Busy
    futures.wait([sanitized])  # before a GPU is held
    with the_gpu(ctx).turn():
        the_gpu(ctx).prepare(PROCESSES)  # of this GPU, which may be another one than measured it
        return _proved(ctx, candidate, first, sanitized)


def _proved(ctx: Context, candidate: Candidate, first: Judgement, sanitized: Future[VariantBuild]) -> Outcome:
    choices = first.choices
    bundle = bundle_ref(ctx.store.contents, bundle_of(candidate))
    again = {c: PlanRef(bundle, label) for c, label in choices.items()}
    against = _against(ctx, ctx.store.began_with(ctx.run.id, candidate.generation))
    confirm = Confirm.of(again, against)
    if the_gpu(ctx).by_hand and not any(_on_request(ctx.settings)):
        safety_checks.announce(ctx, candidate, choices, sanitized.result(), confirm)
    raced = safety_checks.race(ctx, candidate, choices, sanitized)
    first = first.with_stages([*first.stages, raced.as_json()])
    if raced.ends:
        return Judgement(raced.verdict or Verdict.RACE, raced.stage, raced.why, first.evidence), first.speedup
    for check in _on_request(ctx.settings):
        evidence = check(ctx, candidate, choices)
        first = first.with_stages([*first.stages, evidence.as_json()])
        if evidence.ends:
            found = Judgement(evidence.verdict or Verdict.WRONG, evidence.stage, evidence.why, first.evidence)
            return found, first.speedup
    confirmed = the_gpu(ctx).verdict(confirm)  # in a new process: it never saw the first run
    return _confirmed(first, _on(the_gpu(ctx), confirmed), against.no_slower)


def _on_request(settings: RunSettings) -> Iterator[Callable[[Context, Candidate, dict[str, str]], Evidence]]:
    """The checks that run on request only."""
    if settings.memcheck:
        yield safety_checks.memchecked
    if settings.second_assembler:
        yield safety_checks.reassembled


def passed_over(judged: Judgement, why: str) -> Judgement:
    """Return the verdict `undecided` on a candidate that was looked at, or measured, and is not proved."""
    looked = judged.verdict == Verdict.CHECKED
    stage, missing = (
        ("time", " at a first look; not measured") if looked else ("confirm", "; neither raced nor confirmed")
    )
    whole = judged.why + plain(f"{missing}: {why}")
    last = Evidence(stage, Verdict.UNDECIDED, whole).as_json()
    return replace(judged.with_stages([*judged.stages, last]), verdict=Verdict.UNDECIDED, stage=stage, why=whole)


def _other_bits(ctx: Context, candidate: Candidate, choices: dict[str, str]) -> str:
    """Why a TTGIR edit that only moves ops is wrong; empty if it gives the very bits of the text that it replaces."""
    built, base = candidate.build, ctx.baseline()
    edit = next((s.found.get("edit") for s in built.stages if s.stage == "inspect"), "")
    replaced = built.replaced.get("bundle")
    if edit != edit_kind.SCHEDULE or not replaced or base.nondeterministic:
        return ""
    bundles = [bundle_ref(ctx.store.contents, b) for b in (bundle_of(candidate), replaced)]
    ours, own = ({c: PlanRef(bundle, choices[c]) for c in base.cases} for bundle in bundles)
    case = the_gpu(ctx).ask(SameBits(base.cases, ours, own)).differs
    return (
        f"{case}: the edit moves ops alone, and the results are not the bits of the kernel's own text" if case else ""
    )


def _confirmed(first: Judgement, confirmed: Judgement, no_slower: bool) -> Outcome:
    stages = [*first.stages, *confirmed.stages]
    evidence = {**first.evidence, "again": confirmed.evidence, "stages": stages}
    covered = first.coverage + confirmed.coverage
    if no_slower and confirmed.verdict in _BY_TIME:
        verdict, why = regression.agreed(first, confirmed)
        return Judgement(verdict, "confirm", why, evidence, covered), confirmed.speedup
    if first.verdict in _NOT_FASTER and confirmed.verdict in {Verdict.ACCEPTED, *_NOT_FASTER}:
        return replace(first, evidence=evidence), first.speedup  # right, and not faster at the first look
    if confirmed.verdict != Verdict.ACCEPTED:
        why = plain("not confirmed: ") + confirmed.why
        return Judgement(confirmed.verdict, "confirm", why, evidence), None
    return Judgement(Verdict.ACCEPTED, "confirm", confirmed.why, evidence, covered), confirmed.speedup


def _against(ctx: Context, which: str) -> Against:
    base = ctx.baseline()
    beaten, shipped, tuned = (incumbent.side(ctx, name) for name in (which, incumbent.SHIPPED, "tuned"))
    asked = bool(ctx.run.facts.against)  # then nothing but the file's own list was swept
    return Against(beaten, shipped, None if asked else tuned, base.cases, base.held_out, base.weights, no_slower=asked)


def _bundle(ctx: Context, candidate: Candidate) -> Whole:
    return Whole(bundle_ref(ctx.store.contents, bundle_of(candidate)))


def _with_incumbent(gpu: Judge, against: str, judged: Judgement) -> Judgement:
    """The judgement with what it was measured against, and on which GPU."""
    return _on(gpu, replace(judged, evidence={**judged.evidence, "incumbent": against}))


def _on(gpu: Judge, judged: Judgement) -> Judgement:
    """The judgement with the GPU that answered this thread last, if the judge reports one."""
    gpu_id = safety_checks.taken_on(gpu)
    return replace(judged, evidence={**judged.evidence, "taken_on": gpu_id}) if gpu_id else judged
