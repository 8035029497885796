"""Stage synchronisation: data that blocks pass to blocks of the same launch, and launches to overlapping launches.

Three rules: `published` and `waiting` for flags, counters and locks in global memory, `dependent launch` for launches
that start early. A kernel without atomics, waiting loops and early launches passes. Where the original breaks the same
rule, the verdict is `undecided`.
"""

from collections.abc import Iterator
from dataclasses import replace

from pgo_agent.sandbox.bundle.documents import PlanDocument
from pgo_agent.sandbox.gate import coverage
from pgo_agent.sandbox.gate.barriers.launches import is_secret
from pgo_agent.sandbox.gate.coverage import NOTHING, Coverage
from pgo_agent.sandbox.gate.evidence import Evidence, Side
from pgo_agent.sandbox.gate.reason import plain, quoted
from pgo_agent.sandbox.gate.synchronisation import block_waits, dependent_launch, initial_memory, publication
from pgo_agent.sandbox.gate.synchronisation.dependent_launch import Text, storages
from pgo_agent.sandbox.gate.synchronisation.finding import ORDER, Finding
from pgo_agent.sandbox.gate.synchronisation.resident_blocks import resident
from pgo_agent.sandbox.gate.synchronisation.spin_loops import spins
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.ttgir import reader
from pgo_agent.sandbox.ttgir.dataflow import ATOMICS, Flow
from pgo_agent.sandbox.ttgir.tokens import Unreadable

MOST_LAUNCHES = 4  # of one kernel whose blocks are run
SIGNS = ("tt.atomic_", "scf.while")  # a text without them cannot break a rule of one kernel


def stage(candidate: Side, original: Side) -> Evidence:
    """Return the gravest finding over all kernels and plans, or no verdict."""
    ours, covered = look(candidate)
    if not ours:
        text = covered.said() if candidate.launched else "no kernel is launched"
        return Evidence("synchronisation", None, plain(text), coverage=covered)
    theirs = {f.rule for f in look(original)[0]}
    also = "; the original does, too"
    judged = [
        replace(f, verdict=Verdict.UNDECIDED, sentence=f.sentence + also) if f.rule in theirs else f for f in ours
    ]
    worst = min(judged, key=lambda f: ORDER.index(f.verdict))
    facts = {"rule": worst.rule, "all": [f.sentence for f in judged[:20]]}
    return Evidence("synchronisation", worst.verdict, quoted(worst.sentence, worst.case), found=facts, coverage=covered)


def look(side: Side) -> tuple[list[Finding], Coverage]:
    """Return all findings of the rules, each once, and what was checked."""
    findings: list[Finding] = []
    covered = NOTHING
    texts: dict[str, Text] = {}
    early = any(side.manifest["kernels"][key]["launch_pdl"] for key in side.launched)
    for key in side.launched:
        name = side.manifest["kernels"][key]["name"]
        if not early and not any(sign in side.texts[key] for sign in SIGNS):
            covered += coverage.of(kernels=1, atomics=0, waiting_loops=0)
            continue
        try:
            texts[key] = text = _read(side, key)
        except Unreadable as e:
            findings.append(Finding(Verdict.UNDECIDED, f"{name}: the TTGIR cannot be read: {e}", "reading"))
            covered += coverage.of(kernels=(0, 1))
            continue
        of_kernel, looked = _kernel(side, key, text)
        findings += [replace(f, sentence=f"{name}: {f.sentence}") for f in of_kernel]
        covered += looked
    if early and len(texts) == len(side.launched):
        plans = [p for plans in side.plans.values() for p in plans]
        findings += [f for plan in plans for f in dependent_launch.rule(plan, texts)]
        covered += coverage.of(plans_with_early_launches=len(plans))
    return list(dict.fromkeys(findings)), covered


def _read(side: Side, key: str) -> Text:
    kernel = side.manifest["kernels"][key]
    module = reader.parse(side.texts[key])
    return Text(kernel["name"], module, Flow(module), kernel["launch_pdl"])


def _kernel(side: Side, key: str, text: Text) -> tuple[list[Finding], Coverage]:
    """Return the findings in one kernel, for each way in which it is launched."""
    atomics, waits = sum(op.name in ATOMICS for op in text.values.order), spins(text.values)
    covered = coverage.of(kernels=1, operations=len(text.values.order), atomics=atomics, waiting_loops=len(waits))
    if not atomics and not waits:
        return [], covered
    steps = list(_launches(side, key))
    shared = list(dict.fromkeys(tuple(storages(p["steps"][n]).items()) for _, p, n in steps))
    findings = [f for s in shared for f in publication.rule(text.module, text.values, dict(s))]
    if not waits:
        return findings, covered
    kernel = side.manifest["kernels"][key]
    fit = resident(kernel, side.statics[key])
    for case, plan, n in steps[:MOST_LAUNCHES]:
        begins = initial_memory.before(plan["steps"], n)
        launch = block_waits.WaitingLaunch(
            plan["steps"][n], begins, fit, kernel["launch_cooperative_grid"], is_secret(case)
        )
        of_launch, ran = block_waits.rule(text.module, text.values, waits, launch)
        findings += [replace(f, case=case) for f in of_launch] if is_secret(case) else of_launch
        covered += coverage.of(blocks_run=(ran, launch.blocks))
    skipped = {
        f"{len(steps) - MOST_LAUNCHES} launches of {text.name}": f"its blocks were run in {MOST_LAUNCHES} others"
    }
    return findings, covered + coverage.of(skipped if len(steps) > MOST_LAUNCHES else {})


def _launches(side: Side, key: str) -> Iterator[tuple[str, PlanDocument, int]]:
    """Give the launches of a kernel in plans, public cases first; equal launches once."""
    seen: list[object] = []
    for case, plans in sorted(side.plans.items(), key=lambda c: is_secret(c[0])):
        for plan, n in ((p, n) for p in plans for n in range(len(p["steps"]))):
            step = plan["steps"][n]
            if step.get("kernel") == key and step not in seen:
                seen.append(step)
                yield case, plan, n
