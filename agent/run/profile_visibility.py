"""What of profiles the optimizer is told: all of it, what Nsight Compute counts, or nothing. Ablations compare them.

What the compiler says of every build (registers, spills, notes of ptxas) stays in all of them: moves read it to prove
that they apply, and builds that it shows dominated take no GPU time.
"""

from dataclasses import replace
from enum import StrEnum

from pgo_agent.agent.profile.case_profile import CaseProfile
from pgo_agent.agent.run.context import Context
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.profile.kernel_profile import PassName


class Insight(StrEnum):
    ALL = "all"
    COUNTERS = "counters"
    NONE = "none"


def of(ctx: Context) -> Insight:
    """By the settings of a run; records from before there was a choice have all."""
    return Insight(ctx.settings.get("insight", Insight.ALL))


def check(name: str) -> None:
    """Raises UsageFault for what is none of them."""
    if name not in list(Insight):
        raise UsageFault(f"'{name}' is not what a run can be told of profiles", f"choose one of: {', '.join(Insight)}")


def passes(which: Insight) -> frozenset[PassName] | None:
    """Those to take; None leaves it to the profiler."""
    return frozenset({PassName.COUNTERS}) if which is Insight.COUNTERS else None


def cut(case: CaseProfile, which: Insight) -> CaseProfile:
    """A profile without what is not to be told: findings of other passes, and costs beside lines of code."""
    if which is not Insight.COUNTERS:
        return case
    findings = {b: tuple(f for f in found if f.found_by is PassName.COUNTERS) for b, found in case.findings.items()}
    return replace(case, findings=findings, code={})
