"""Safety checks of a candidate that may be accepted: races, idle launches, and the checks that a user asked for.

They run after it was measured, in processes that are thrown away. Each check is a function (context, candidate, chosen
configurations) -> Evidence. If a sanitizer cannot run, a stress run leaves `undecided`: a caveat, not a refusal.
"""

import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace

from pgo_agent.agent.run import incumbent
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.record.candidate import Candidate
from pgo_agent.sandbox.build import variants
from pgo_agent.sandbox.build.variants import VariantBuild
from pgo_agent.sandbox.gate import coverage
from pgo_agent.sandbox.gate.evidence import Evidence, kernels
from pgo_agent.sandbox.gate.reason import Reason, joined, plain, quoted
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict
from pgo_agent.sandbox.judge.gpu_judge import GpuJudge
from pgo_agent.sandbox.judge.interface import Ended, Judge
from pgo_agent.sandbox.judge.pool import GpuPool
from pgo_agent.sandbox.judge.questions import Confirm, Idle, Numerics, Race
from pgo_agent.sandbox.judge.references import PlanRef, bundle_ref
from pgo_agent.sandbox.judge.results import memcheck
from pgo_agent.sandbox.temporary_folders import temporary_folder

TRAPPED = "an illegal instruction was encountered"  # what the driver says of a trap
WORDLESS = "stopped the kernel, and could not say why"
MISCOUNTED = "this sanitizer takes each copy for an arrival, and here several complete on one barrier (triton #9046)"
_ASSERTION = re.compile(r"Assertion `(.+?)` failed")


def raced(ctx: Context, candidate: Candidate, choices: Mapping[str, str]) -> dict[str, str]:
    """Return case -> configuration of the public cases on which a candidate is raced: of those that launch the same
    kernels the one with the least work; the least work first."""
    base, plans = ctx.baseline(), ctx.store.contents.manifest(bundle_of(candidate))["plans"]
    public = [c for c in choices if c.startswith(coverage.PUBLIC)]
    case_by_kernels: dict[tuple[str, ...], str] = {}
    for case in sorted(public, key=lambda c: base.work_of(c).flops):
        case_by_kernels.setdefault(tuple(kernels(plans[case][choices[case]])), case)
    return {case: choices[case] for case in case_by_kernels.values()}


def announce(
    ctx: Context, candidate: Candidate, choices: Mapping[str, str], sanitized: VariantBuild, confirm: Confirm
) -> None:
    """Ask at once what a proof asks where nothing is found: a judge elsewhere that nobody waits for takes a round each
    time that something is asked."""
    gpu, stress, cases = the_gpu(ctx), not sanitized.bundle, raced(ctx, candidate, choices)
    own = bundle_ref(ctx.store.contents, bundle_of(candidate))
    raced_bundle = own if stress else bundle_ref(ctx.store.contents, sanitized.bundle)
    for case, label in cases.items():
        gpu.queue(Race(raced_bundle, case, label, stress=stress, sanitized=None if stress else True), fresh=1)
    for case, label in list({**cases, **choices}.items())[:1]:
        if _launched(ctx, bundle_of(candidate), case, label).total() > 1:
            gpu.queue(Idle(case, {case: PlanRef(own, label)}, incumbent.side(ctx, incumbent.SHIPPED)), fresh=1)
    gpu.queue(confirm, fresh=2)


def race(ctx: Context, candidate: Candidate, choices: Mapping[str, str], compiled: Future[VariantBuild]) -> Evidence:
    """Run the sanitized build of a candidate on every kernel that it launches; if that cannot run, do a stress run.

    `undecided` after a stress run without findings: it may be accepted, with the caveat.
    """
    started, gpu, cases = time.monotonic(), the_gpu(ctx), raced(ctx, candidate, choices)
    sanitized = compiled.result()
    evidence = (
        _sanitized(ctx, sanitized, cases)
        if sanitized.bundle
        else Evidence("race", Verdict.UNDECIDED, quoted(sanitized.problem))
    )
    if evidence.verdict == Verdict.UNDECIDED:
        evidence = _stressed(ctx, candidate, cases, evidence.why)
    evidence = evidence if evidence.ends else _needed(ctx, candidate, choices) or evidence
    gpu.fresh()
    return replace(evidence, seconds=time.monotonic() - started)


def _sanitized(ctx: Context, build: VariantBuild, cases: Mapping[str, str]) -> Evidence:
    gpu, bundle = the_gpu(ctx), bundle_ref(ctx.store.contents, build.bundle)
    gpu.fresh()
    for case, label in cases.items():
        judged = gpu.verdict(Race(bundle, case, label, stress=False, sanitized=True))
        if judged.verdict != Verdict.CHECKED:
            return _failed(ctx, build, judged)
    named = ", ".join(c.removeprefix(coverage.PUBLIC) for c in cases)
    text = f"Triton's concurrency sanitizer saw no hazard ({named})"
    return Evidence("race", None, plain(text), coverage=coverage.of(cases=_of_all(ctx, cases)))


def _of_all(ctx: Context, cases: Mapping[str, str]) -> tuple[int, int]:
    """The number of public cases that were raced, and of all: the others launch the same kernels."""
    return len(cases), len(ctx.baseline().cases)


def _failed(ctx: Context, build: VariantBuild, judged: Judgement) -> Evidence:
    """The evidence of a sanitized run that did not end well."""
    evidence = hazard(judged)
    if evidence is None:
        return Evidence("race", Verdict.UNDECIDED, judged.why)
    doubtful = evidence.verdict == Verdict.DEADLOCK or WORDLESS in evidence.reason
    if doubtful and variants.miscounts(ctx.store.contents, build):
        return Evidence("race", Verdict.UNDECIDED, plain(MISCOUNTED))
    return evidence


def _stressed(ctx: Context, candidate: Candidate, cases: Mapping[str, str], problem: Reason) -> Evidence:
    gpu, bundle = the_gpu(ctx), bundle_ref(ctx.store.contents, bundle_of(candidate))
    gpu.fresh()
    whys, covered = list[Reason](), coverage.NOTHING
    for case, label in cases.items():
        judged = gpu.verdict(Race(bundle, case, label, stress=True))
        if judged.verdict != Verdict.CHECKED:
            return Evidence("race", judged.verdict, judged.why)
        whys.append(judged.why)
        covered += judged.coverage
    why = plain("the sanitizer could not run (") + problem + plain("); stress run: ") + joined("; ", whys)
    return Evidence("race", Verdict.UNDECIDED, why, coverage=covered)


def _needed(ctx: Context, candidate: Candidate, choices: Mapping[str, str]) -> Evidence | None:
    """`rejected` if a candidate launches kernels that its outputs do not need, more often than the target does; else
    None.

    A kernel for edges may have nothing to do in one case, so it counts only if it is idle in every case that launches
    it, held-out ones included. Cases are tried until each kernel was launched and none seems idle.
    """
    bundle_id, shipped = bundle_of(candidate), incumbent.side(ctx, incumbent.SHIPPED)
    bundle, idle = bundle_ref(ctx.store.contents, bundle_id), dict[str, int]()
    for case, label in {**raced(ctx, candidate, choices), **choices}.items():
        launched = _launched(ctx, bundle_id, case, label)
        if launched.total() < 2:  # an output that no launch writes keeps what was there, and was found wrong
            idle |= dict.fromkeys(launched, 0)
        elif any(idle.get(n, 1) for n in launched):
            idle = idle_in_all(idle, launched, _idle(ctx, Idle(case, {case: PlanRef(bundle, label)}, shipped)))
    named = ", ".join(n for n, count in sorted(idle.items()) for _ in range(count))
    why = quoted(f"the outputs do not need the launch of {named}")
    return Evidence("launches", Verdict.REJECTED, why) if named else None


def _idle(ctx: Context, question: Idle) -> tuple[str, ...]:
    try:
        return the_gpu(ctx).ask(question).idle
    except Ended:
        return ()  # without one of its launches it faults or hangs: that one was needed


def idle_in_all(before: Mapping[str, int], launched: Iterable[str], idle: Sequence[str]) -> dict[str, int]:
    """Return kernel -> number of launches that are idle in all cases that launch it. `before`: of other cases;
    `launched` and `idle`: names of kernels in one more case."""
    return {**before, **{n: min(before.get(n, idle.count(n)), idle.count(n)) for n in set(launched)}}


def _launched(ctx: Context, bundle: str, case: str, label: str) -> Counter[str]:
    """Name of each kernel that a configuration launches -> number of launches; those without blocks do not count."""
    manifest = ctx.store.contents.manifest(bundle)
    steps = manifest["plans"][case][label]["steps"]
    return Counter(manifest["kernels"][s["kernel"]]["name"] for s in steps if "kernel" in s and 0 not in s["grid"])


def memchecked(ctx: Context, candidate: Candidate, choices: Mapping[str, str]) -> Evidence:
    """Launch every kernel once under NVIDIA's compute-sanitizer, with a separate allocation for each tensor."""
    started, bundle, local = time.monotonic(), bundle_ref(ctx.store.contents, bundle_of(candidate)), the_gpu(ctx)
    if not isinstance(local, GpuJudge | GpuPool) or not local.here:
        return Evidence("memcheck", Verdict.UNDECIDED, plain("it runs on the GPU's own machine alone"))
    with local.turn() as gpu, local.occupied(), temporary_folder("sanitizer") as folder:
        assert isinstance(gpu, GpuJudge)
        log = folder / "log"
        judge = replace(gpu, under=(*memcheck.command(), "--log-file", str(log)))
        try:
            for case, label in raced(ctx, candidate, choices).items():
                judged = judge.verdict(Race(bundle, case, label, stress=False, unguarded=True))
        finally:
            judge.close()
        problem = memcheck.problem(log)
    seconds = time.monotonic() - started
    if problem:
        return Evidence("memcheck", Verdict.WRONG, quoted(problem), seconds)
    if judged.verdict != Verdict.CHECKED:
        return Evidence("memcheck", Verdict.UNDECIDED, judged.why, seconds)
    covered = coverage.of(cases=len(raced(ctx, candidate, choices)))
    why = plain("compute-sanitizer saw no access outside of a tensor")
    return Evidence("memcheck", None, why, seconds, coverage=covered)


def reassembled(ctx: Context, candidate: Candidate, choices: Mapping[str, str]) -> Evidence:
    """Compare with the results of the same PTX by another ptxas. A difference is a caveat: one assembler is wrong."""
    started, gpu = time.monotonic(), the_gpu(ctx)
    build = variants.reassembled(ctx.builder, bundle_of(candidate), choices)
    if not build.bundle:
        return Evidence("assembler", Verdict.UNDECIDED, quoted(build.problem), time.monotonic() - started)
    on = bundle_ref(ctx.store.contents, build.bundle)
    judged = gpu.verdict(Numerics({c: PlanRef(on, label) for c, label in choices.items()}, "assembler"))
    gpu.fresh()
    fine = judged.verdict == Verdict.CHECKED
    why = judged.why if fine else plain(f"{judged.verdict} as the second ptxas assembles it: ") + judged.why
    verdict = None if fine else Verdict.UNDECIDED
    return Evidence("assembler", verdict, why, time.monotonic() - started, coverage=judged.coverage)


def hazard(judged: Judgement) -> Evidence | None:
    """Return a hazard or a deadlock in the sanitizer's own words; None if the run failed for another reason.

    A sanitized build is many times slower, so its timeout says nothing about the plain one. In its PTX a `trap` follows
    every assertion, and there is no other `trap`; in a specialized kernel it may come before the message.
    """
    asserted = list(dict.fromkeys(_ASSERTION.findall(judged.reason)))
    if judged.verdict == Verdict.CRASHED and not asserted and TRAPPED in judged.reason:
        return Evidence("race", Verdict.RACE, plain(f"Triton's concurrency sanitizer {WORDLESS}"))
    if judged.verdict != Verdict.CRASHED or not asserted:
        return None
    verdict = Verdict.DEADLOCK if "deadlock" in asserted[0].lower() else Verdict.RACE
    return Evidence("race", verdict, quoted(f"Triton's concurrency sanitizer: {asserted[0]}"))


def taken_on(gpu: Judge) -> dict[str, str]:
    """Return UUID and index of the GPU that answered this thread last, if its judge reports them."""
    on = gpu.environment
    return {k: v for k, v in {"uuid": on.uuid, "index": on.index}.items() if v}


def the_gpu(ctx: Context) -> Judge:
    if ctx.gpu is None:
        raise RuntimeError("nothing to judge with")
    return ctx.gpu


def bundle_of(candidate: Candidate) -> str:
    return candidate.build.bundle
