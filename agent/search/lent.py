"""Takes over the baseline of another run of the same target, with the profile of the kernel as shipped.

Runs that differ in what they are told share both: they are taken once, and candidates are timed against sides that are
built and launched alike. Each candidate is still timed beside them in a session of its own.
"""

from dataclasses import replace

from pgo_agent.agent.run import incumbent
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.record import profiles
from pgo_agent.agent.run.record.run import Run
from pgo_agent.agent.run.record.run_summary import MeasuredRun
from pgo_agent.sandbox.errors import UsageFault

HINT = "make that run again, then this one"


def take_over(ctx: Context) -> None:
    """Write the lender's baseline and profile into the record of this run. Raises UsageFault where they do not fit."""
    lender = ctx.store.run(ctx.settings.baseline_of)
    baseline = lender.baseline
    if baseline is None or _problem(ctx, lender):
        why = _problem(ctx, lender) or "it has none"
        raise UsageFault(f"the baseline of run {lender.id} cannot be taken over: {why}", HINT)
    for stored in profiles.of(ctx.store, lender.id, incumbent.SHIPPED):
        profiles.add(ctx.store, ctx.run.id, stored)
        profiles.update(ctx.store, ctx.run.id, stored)
    ctx.store.set_baseline(ctx.run.id, baseline)  # last: a run without one begins here


def summary(ctx: Context) -> MeasuredRun | None:
    """Return what the lender's last session measured, for a run that found nothing which another could measure."""
    if not ctx.settings.baseline_of or incumbent.name(ctx) != incumbent.SHIPPED:
        return None
    measured = ctx.store.run(ctx.settings.baseline_of).summary
    return replace(measured, seconds=round(ctx.spend(), 1)) if isinstance(measured, MeasuredRun) else None


def _problem(ctx: Context, lender: Run) -> str:
    own = (ctx.run.digest, ctx.run.device, ctx.run.facts.triton, ctx.settings.cases)
    theirs = (lender.digest, lender.device, lender.facts.triton, lender.settings.cases)
    names = ("text of the target", "device", "version of Triton", "choice of cases")
    return ", ".join(f"it is of another {name}" for name, a, b in zip(names, own, theirs, strict=True) if a != b)
