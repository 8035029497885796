"""What a candidate is put through once it is built: the stages on the GPU, or Triton's interpreter without one.

On the GPU a candidate that may be recorded as faster goes through three processes: one that measures it, one that runs
its sanitized twin, one that knows nothing of the first and confirms it.
"""

import re
import time
from dataclasses import replace
from typing import Any

from pgo_agent.agent import beam, check, incumbent, screening
from pgo_agent.agent.context import Context
from pgo_agent.agent.store import Candidate
from pgo_agent.sandbox import twins
from pgo_agent.sandbox.gate import inspect
from pgo_agent.sandbox.gate.evidence import Evidence
from pgo_agent.sandbox.gate.verdict import Judged, Verdict
from pgo_agent.sandbox.judge.pool import Judge, on_shelf

Outcome = tuple[Judged, float | None]  # a verdict, and the speedup over the incumbent, if one was measured
_NOT_FASTER = {Verdict.SLOWER, Verdict.UNDECIDED}  # as far as the clock can tell
_FINE = {Verdict.CHECKED, Verdict.BUILT, *_NOT_FASTER}
_ASSERTION = re.compile(r"Assertion `(.+?)` failed")


def in_interpreter(ctx: Context, candidate: Candidate) -> Outcome:
    if candidate.kind == "ttgir":
        return Judged(Verdict.BUILT, "interpreter", "it compiles; Triton's interpreter does not run TTGIR"), None
    foreign, seconds = candidate.author != beam.AUTHOR, ctx.settings.get("interpreting")
    return ctx.cpu.verdict("check", source=candidate.source, foreign=foreign, seconds=seconds), None


def told_apart(ctx: Context, candidate: Candidate, judged: Judged) -> Judged:
    """Says of a given candidate with nothing wrong when it is no other kernel than the target."""
    known = screening.known_code(ctx, candidate.built or {})
    if candidate.kind != "ttgir" and check.same(candidate.source, ctx.target.source):
        known = Judged(Verdict.NO_CHANGE, "", "it holds the same statements as the target")
    if known is None or known.verdict != Verdict.NO_CHANGE or judged.verdict not in _FINE:
        return judged
    return Judged(Verdict.NO_CHANGE, judged.stage, f"{known.reason}; {judged.reason}", judged.evidence)


# on the GPU -----------------------------------------------------------------------------------------------------------


def on_gpu(ctx: Context, candidate: Candidate) -> Outcome:
    """Measures; what would be accepted, or was given to be checked and is not wrong, is raced and confirmed."""
    gpu = _gpu(ctx)
    fields = _sides(ctx)
    bundle = {"bundle": on_shelf(ctx.store.shelf, _bundle(candidate))}
    first = gpu.verdict("judge", candidate=bundle, **fields)
    given = candidate.author == check.AUTHOR
    if first.verdict != Verdict.ACCEPTED and not (given and first.verdict in _NOT_FASTER):
        return first, _speedup(first)
    if differs := _other_bits(ctx, candidate, first.evidence["choices"]):
        return Judged(Verdict.WRONG, "numerics", differs, first.evidence), None
    raced = race(ctx, candidate, first.evidence["choices"])
    first = _with(first, [*_stages(first), raced.as_json()])
    if raced.ends:
        return Judged(raced.verdict or Verdict.RACE, "race", raced.reason, first.evidence), _speedup(first)
    if ctx.settings.get("second_assembler"):
        first = _with(first, [*_stages(first), _reassembled(ctx, candidate, first.evidence["choices"]).as_json()])
    again = {c: bundle | {"choice": label} for c, label in first.evidence["choices"].items()}
    confirmed = gpu.verdict("confirm", candidate=again, **fields)  # a new process: it never saw the first run
    return _confirmed(first, confirmed)


def _other_bits(ctx: Context, candidate: Candidate, choices: dict[str, str]) -> str:
    """Why a TTGIR edit that only moves ops is wrong: it must give the very bits of the text that it replaces."""
    built = candidate.built or {}
    edit = next((s["found"].get("edit") for s in built["stages"] if s["stage"] == "inspect"), "")
    own, base = built.get("replaced", {}).get("bundle"), ctx.baseline()
    if edit != inspect.SCHEDULE or not own or base["nondeterministic"]:
        return ""
    sides = {n: on_shelf(ctx.store.shelf, b) for n, b in (("candidate", _bundle(candidate)), ("own", own))}
    picks = {n: {c: {"bundle": b, "choice": choices[c]} for c in base["cases"]} for n, b in sides.items()}
    case = _gpu(ctx).ask("same_bits", public=base["cases"], **picks)["differs"]
    return (
        f"{case}: the edit moves ops alone, and the results are not the bits of the kernel's own text" if case else ""
    )


def _confirmed(first: Judged, confirmed: Judged) -> Outcome:
    stages = [*_stages(first), *_stages(confirmed)]
    evidence = {**first.evidence, "again": confirmed.evidence, "stages": stages}
    if first.verdict in _NOT_FASTER and confirmed.verdict in {Verdict.ACCEPTED, *_NOT_FASTER}:
        return replace(first, evidence=evidence), _speedup(first)  # right, and not faster at the first look
    if confirmed.verdict != Verdict.ACCEPTED:
        return Judged(confirmed.verdict, "confirm", f"not confirmed: {confirmed.reason}", evidence), None
    return Judged(Verdict.ACCEPTED, "confirm", confirmed.reason, evidence), _speedup(confirmed)


def race(ctx: Context, candidate: Candidate, choices: dict[str, str]) -> Evidence:
    """The candidate's sanitized twin on the case with least work; where none compiles, a stress run.

    `undecided` after a stress run without findings: it may be accepted, with the caveat.
    """
    started, gpu = time.monotonic(), _gpu(ctx)
    work = ctx.baseline()["work"]["CASES"]
    case = min((c for c in choices if c.startswith("CASES/")), key=lambda c: work[c.split("/", 1)[1]]["flops"])
    twin = twins.sanitized(ctx.builder, _bundle(candidate), {case: choices[case]})
    gpu.fresh()
    said = {"case": case, "choice": choices[case]}
    problem = twin.problem
    if twin.bundle:
        judged = gpu.verdict("race", bundle=on_shelf(ctx.store.shelf, twin.bundle), stress=False, **said)
        found = hazard(judged)
        if found is not None:
            gpu.fresh()
            return replace(found, seconds=time.monotonic() - started)
        problem = judged.reason
    gpu.fresh()
    own = on_shelf(ctx.store.shelf, _bundle(candidate))
    judged = gpu.verdict("race", bundle=own, stress=True, **said)
    gpu.fresh()
    fine = judged.verdict == Verdict.CHECKED
    reason = f"the sanitizer could not run ({problem}); stress run: {judged.reason}" if fine else judged.reason
    return Evidence("race", Verdict.UNDECIDED if fine else judged.verdict, reason, time.monotonic() - started)


def _reassembled(ctx: Context, candidate: Candidate, choices: dict[str, str]) -> Evidence:
    """The results of the same PTX by another ptxas. A difference is a caveat: one of the two assemblers errs."""
    started, gpu = time.monotonic(), _gpu(ctx)
    twin = twins.reassembled(ctx.builder, _bundle(candidate), choices)
    if not twin.bundle:
        return Evidence("assembler", Verdict.UNDECIDED, twin.problem, time.monotonic() - started)
    on = on_shelf(ctx.store.shelf, twin.bundle)
    picks = {c: {"bundle": on, "choice": label} for c, label in choices.items()}
    judged = gpu.verdict("numerics", candidate=picks, stage="assembler")
    gpu.fresh()
    fine = judged.verdict == Verdict.CHECKED
    reason = judged.reason if fine else f"{judged.verdict} as the second ptxas assembles it: {judged.reason}"
    return Evidence("assembler", None if fine else Verdict.UNDECIDED, reason, time.monotonic() - started)


def hazard(judged: Judged) -> Evidence | None:
    """What a sanitized run says: a hazard, a hang, or nothing against it; None when it failed for another reason."""
    if judged.verdict == Verdict.CHECKED:
        return Evidence("race", None, judged.reason)
    if judged.verdict == Verdict.TIMEOUT:
        return Evidence("race", Verdict.DEADLOCK, f"the sanitized build {judged.reason}")
    asserted = list(dict.fromkeys(_ASSERTION.findall(judged.reason)))
    if judged.verdict != Verdict.CRASHED or not asserted:
        return None
    verdict = Verdict.DEADLOCK if "deadlock" in asserted[0].lower() else Verdict.RACE
    return Evidence("race", verdict, f"Triton's concurrency sanitizer: {asserted[0]}")


def _gpu(ctx: Context) -> Judge:
    if ctx.gpu is None:
        raise RuntimeError("nothing to judge with")
    return ctx.gpu


def _bundle(candidate: Candidate) -> str:
    return str((candidate.built or {})["bundle"])


def _sides(ctx: Context) -> dict[str, Any]:
    base = ctx.baseline()
    return {
        "incumbent": incumbent.side(ctx, incumbent.name(ctx)),
        "shipped": incumbent.side(ctx, incumbent.SHIPPED),
        "tuned": incumbent.side(ctx, "tuned"),
        "public": base["cases"],
        "held_out": base["held_out"],
        "weights": base["weights"],
    }


def _stages(judged: Judged) -> list[dict[str, Any]]:
    return list(judged.evidence.get("stages", []))


def _with(judged: Judged, stages: list[dict[str, Any]]) -> Judged:
    return replace(judged, evidence={**judged.evidence, "stages": stages})


def _speedup(judged: Judged) -> float | None:
    found = judged.evidence.get("speedup")
    return float(found[1]) if found else None
