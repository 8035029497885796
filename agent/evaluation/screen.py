"""Verdicts that need no GPU: failed builds, the gate's stages on the CPU, known code, and dominated builds.

It reads builds and the record only; `duplicates.py` finds known code. What passes here goes to the judge.
"""

import re
import statistics
from collections.abc import Iterable

from pgo_agent.agent.evaluation import duplicates, tuned_in_place
from pgo_agent.agent.profile import cost_model
from pgo_agent.agent.run import incumbent, provenance
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.record.baseline import Baseline
from pgo_agent.agent.run.record.candidate import Candidate
from pgo_agent.sandbox.build.result import Built, Failure
from pgo_agent.sandbox.build.variant_launches import Launcher
from pgo_agent.sandbox.bundle.documents import Manifest, merged
from pgo_agent.sandbox.gate import coverage, edit_kind, offsets, plan_rules
from pgo_agent.sandbox.gate.barriers import stage as deadlock
from pgo_agent.sandbox.gate.evidence import Evidence, examine, side
from pgo_agent.sandbox.gate.reason import Reason, of_case, plain, quoted
from pgo_agent.sandbox.gate.synchronisation import stage as synchronisation
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict

KNOWN_GAIN = 0.003  # a known gain below it is not worth judging: the judge would not call it one
STAGES = (
    plan_rules.stage,
    edit_kind.stage,
    deadlock.stage,
    synchronisation.stage,
    offsets.stage,
)  # on the CPU, in this order, of what was built
SAID = 400  # characters of a reason
_ASSERTION = re.compile(r"Assertion `(.+?)' failed")
_ENDS = frozenset({Verdict.REJECTED, Verdict.NO_CHANGE, Verdict.DEADLOCK, Verdict.RACE, Verdict.WRONG})
_FAILED = {"timeout": Verdict.TIMEOUT, "rejected": Verdict.REJECTED, "killed": Verdict.UNDECIDED}


def verdict(ctx: Context, candidate: Candidate) -> Judgement | None:
    """Return the verdict on a built candidate if it needs no GPU; else None."""
    base, built = ctx.baseline(), candidate.build
    wanted = (*base.cases, *(base.held_out if built.whole else ()))
    missing = [c for c in wanted if c not in built.choices]
    if not built.ok or missing:
        failures = (f for f in built.failures if not missing or f.case in (*missing, "", coverage.HELD_OUT))
        failure = next(failures, Failure("build_error", "nothing was built"))
        return Judgement(_FAILED.get(failure.kind, Verdict.BUILD_ERROR), "build", _failed(failure))
    last = built.stages[-1]
    refused = Judgement(last.verdict, last.stage, last.why) if last.verdict in _ENDS else None
    refused = refused or tuned_in_place.refused(ctx, candidate)
    if refused or candidate.author == provenance.GIVEN:
        return refused  # somebody asks whether it is right: slow or known code is no answer to that
    judgement = (
        known_code(ctx, candidate) or duplicates.same_code(ctx, candidate) or duplicates.refused_before(ctx, candidate)
    )
    return judgement or _dominated(built, base)


def _failed(failure: Failure) -> Reason:
    """Why something was not built. The words of a launcher that met a held-out case are not repeated."""
    if failure.case.startswith(coverage.HELD_OUT):
        return plain("fails to build for ") + of_case(failure.case)
    return quoted(_first_line(failure.message))


def stages(ctx: Context, built: Built, source: str) -> list[Evidence]:
    """Return the evidence of the build and, if anything was built, of the stages that examine it. `source`: whose
    kernel() launches it."""
    count = sum(len(options) for options in built.choices.values())
    if not built.ok:
        return [Evidence("build", Verdict.BUILD_ERROR, plain("nothing was built"), sum(built.seconds.values()))]
    listed = sum(max(built.listed.get(c, 0), len(options)) for c, options in built.choices.items())
    of = max(listed, count + len(built.failures))
    text = f"{count} {f'of {listed} ' if listed > count else ''}configurations of {len(built.choices)} cases"
    text += f", {len(built.codes)} kernels"
    covered = coverage.of(cases=len(built.choices), configurations=(count, of))
    seconds = dict(built.seconds)
    first = Evidence("build", None, plain(text), sum(seconds.values()), {"seconds": seconds}, covered)
    contents, in_place = ctx.store.contents, ctx.target.in_place
    cases = {f"{s}/{c}": p for s, of_set in built.described["sets"].items() for c, p in of_set.items()}
    launcher = Launcher(ctx.builder, source, cases)
    ours = side(contents, contents.manifest(built.bundle), built.replaced, in_place, launcher, built.again)
    shipped = next(iter(ctx.baseline().shipped.values())).bundle  # all configurations of the file
    again = ctx.baseline().again
    original = side(contents, _with_held_out(ctx, contents.manifest(shipped)), in_place=in_place, again=again)
    return [first, *examine(STAGES, ours, original)]


def _with_held_out(ctx: Context, shipped: Manifest) -> Manifest:
    """The manifest of the kernel as shipped with its held-out cases, which are a separate bundle."""
    more = ctx.store.contents.manifest(ctx.baseline().held_out_bundle)
    return merged(shipped, more)


def known_code(ctx: Context, candidate: Candidate) -> Judgement | None:
    """Return a verdict if all its code is in the baselines' grid and does not beat the incumbent with which its
    generation began; else None."""
    base, built = ctx.baseline(), candidate.build
    time_by_plan = {(p.case, p.plan_id): p.time for p in base.points if not p.problem}
    brought = duplicates.as_known(ctx, built)
    now = incumbent.plans(ctx, ctx.store.began_with(ctx.run.id, candidate.generation))
    if not all((case, plan) in time_by_plan for case in base.cases for plan in brought[case]):
        return None
    if built.failures:
        return Judgement(Verdict.BUILD_ERROR, "build", _failed(built.failures[0]))
    if not all((case, plan) in time_by_plan for case in base.cases for plan in now[case]):
        return None

    def best(case: str, plans: Iterable[str]) -> float:
        return min(time_by_plan[case, p] for p in plans)

    gain = statistics.geometric_mean(best(c, now[c]) / best(c, brought[c]) for c in base.cases)
    if gain > 1 + KNOWN_GAIN:
        return None
    why = plain("its code is that of configurations which are known and no faster")
    return Judgement(Verdict.NO_CHANGE, "build", why)


def _dominated(built: Built, base: Baseline) -> Judgement | None:
    """Static pruning: `slower` if every new configuration of every case spills or serializes and the kernel as tuned
    does not."""
    reasons = []
    for case in base.cases:
        grid = {p.plan_id for p in base.of_case(case)}
        best = next(p.statics for p in base.points if p.plan_id == base.tuned[case].plan_id)
        for choice in (c for c in built.choices[case] if c.plan_id not in grid):
            reasons.append(cost_model.dominated(built.statics_of(choice), best))
    if reasons and all(reasons):
        return Judgement(Verdict.SLOWER, "static", plain(f"pruned before GPU time: {reasons[0]}"))
    return None


def _first_line(text: str) -> str:
    """The first line of a message that names an error; for Triton's, also the code above the caret.

    Where the compiler itself gave up, its assertion says why, and the error after it only that it did.
    """
    if assertion := _ASSERTION.search(text):
        return f"an assertion of the compiler failed: {assertion[1]}"[:SAID]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    first = next((line for line in lines if "error" in line.lower()), lines[0] if lines else "")
    if not first.endswith(":") or lines[-1] == first:
        return first[:SAID]
    caret = next((n for n, line in enumerate(lines) if line == "^"), 0)
    code = [f"`{line}`" for line in lines[max(caret - 1, 1) : caret]]
    return " ".join([first, *code, *lines[caret + 1 :]])[:SAID]
