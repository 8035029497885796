"""Proposes what PyTorch's compiler writes for the target's reference: its Triton kernels, beside the kernel as shipped.

For kernels that only move data, that compiler is often the one to beat. Its kernels are proposed once in a run, where a
GPU measures them or where kernel() launches none of its own, and judged like any other candidate. The launcher takes
them for arguments of the types and layouts that they were written for, and the kernel as shipped for all others. Where
the kernel works in place, they do, too.
"""

from collections.abc import Collection, Iterator
from contextlib import suppress

from pgo_agent.agent.kernel_part import blocks
from pgo_agent.agent.moves import Proposal, Skipped
from pgo_agent.agent.moves.move import attempted
from pgo_agent.agent.run import incumbent
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.provenance import EMBEDDED
from pgo_agent.agent.run.record.candidate import NewCandidate
from pgo_agent.sandbox.build import compiled_reference
from pgo_agent.sandbox.build.compiled_reference import Compiled, Variant
from pgo_agent.sandbox.bundle.documents import PlanDocument
from pgo_agent.sandbox.gate import plan_rules

MOVE = "PyTorch's compiler"
NAME = "compiled"


def proposals(ctx: Context) -> Iterator[NewCandidate]:
    """Yield at most one candidate for each way to trace the reference. Why there is none is recorded as skipped."""
    if not _due(ctx):
        return
    for made in _made(ctx):
        if isinstance(made, Skipped):
            ctx.store.add_skipped(ctx.run.id, incumbent.SHIPPED, made.move, made.reason)
        else:
            yield NewCandidate.of(made, EMBEDDED, incumbent.SHIPPED)


def ask_ahead(ctx: Context) -> None:
    """Have PyTorch's compiler write what `proposals` will take, which then need not wait for it."""
    is_for_moves = not (ctx.run.facts.open_to or ctx.run.facts.given or ctx.settings.controlled)
    if is_for_moves and ctx.settings.generations != 0 and not ctx.out_of_time() and _due(ctx):
        with suppress(Exception):  # `proposals` will meet it, too
            _answer(ctx)


def _due(ctx: Context) -> bool:
    return _wanted(ctx) and ctx.settings.compiler and not _asked(ctx)


def _wanted(ctx: Context) -> bool:
    """Whether there is a GPU to measure it, or nothing else to begin with: a kernel() of torch operators alone."""
    return ctx.gpu is not None or not incumbent.best_known(ctx, incumbent.SHIPPED)


def _asked(ctx: Context) -> bool:
    """Whether this run has asked the compiler before."""
    proposed = (c.move for c in ctx.store.candidates(ctx.run.id))
    return any(m.startswith(MOVE) for m in (*proposed, *(move for _, move, _ in ctx.store.skipped(ctx.run.id))))


def _answer(ctx: Context) -> Compiled | None:
    """Return what PyTorch's compiler writes; None where a result is a part of an input."""
    point = next(iter(ctx.baseline().shipped.values()))
    plan = ctx.builder.contents.manifest(point.bundle)["plans"][point.case][point.choice]
    in_place = results_in_inputs(plan, ctx.target.in_place)
    if in_place is None:
        return None
    cases, b = [c.split("/", 1)[1] for c in ctx.baseline().cases], ctx.builder
    place, free = (b.box, b.contents, b.target, b.device), _free(ctx.target.source)
    return compiled_reference.write(*place, free, cases, in_place, ctx.baseline().allowed_ops)


def _made(ctx: Context) -> Iterator[Proposal | Skipped]:
    answer = _answer(ctx)
    if answer is None:
        yield Skipped(MOVE, "a result of the kernel is a part of an input")
        return
    texts = set[tuple[str, ...]]()
    for variant in answer.variants:
        text = tuple(p.text for p in variant.parts)
        if text not in texts:
            texts.add(text)
            yield attempted(*_told(variant), lambda v=variant: composed(ctx.target.source, v), ctx.target.source)  # type: ignore[misc]
    if not answer.variants:
        yield Skipped(MOVE, "; ".join(answer.refused) or "it writes nothing for this reference")


def _told(variant: Variant) -> tuple[str, str]:
    rows = ", for rows of these lengths" if variant.rows else ""
    return f"{MOVE}{rows}", f"Triton kernels that PyTorch's compiler (Inductor) writes for the reference{rows}"


def results_in_inputs(plan: PlanDocument, in_place: Collection[str]) -> dict[int, str] | None:
    """Return the results of a plan, by their number, that are inputs which the kernel changes; None where one is a part
    of such an input."""
    storages, found = plan_rules.held(plan, in_place), dict[int, str]()
    for i, result in enumerate(plan["out"]):
        if name := storages.get(result["t"]):
            if plan["inputs"].get(name) != result:
                return None
            found[i] = name
    return found


def _free(source: str) -> str:
    """Return a name that begins no name of a file."""
    names = {n for b in blocks(source) for n in b.names | b.loads}
    return next(n for n in (NAME, *(f"{NAME}{i}" for i in range(2, 99))) if not any(x.startswith(n) for x in names))


def composed(source: str, variant: Variant) -> str:
    """Return a kernel file that takes a variant's kernels where they fit. Raises DoesNotApply."""
    from pgo_agent.agent.moves.analysis.merge_kernels import beside

    imports = [line for p in variant.parts for line in p.imports]
    choices = {p.condition: p.launcher for p in variant.parts}
    return beside(source, list(dict.fromkeys(imports)), [p.text for p in variant.parts], choices)
