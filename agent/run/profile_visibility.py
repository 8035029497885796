"""What of profiles the optimizer is told: all of it, what Nsight Compute counts, or nothing. Ablations compare them.

What the compiler says of every build (registers, spills, notes of ptxas) stays in all of them: moves read it to prove
that they apply, and builds that it shows dominated take no GPU time.
"""

from dataclasses import replace

from pgo_agent.agent.profile.case_profile import CaseProfile
from pgo_agent.agent.run.settings import ProfileVisibility
from pgo_agent.sandbox.profile.kernel_profile import PassName


def passes(which: ProfileVisibility) -> frozenset[PassName] | None:
    """Those to take; None leaves it to the profiler."""
    return frozenset({PassName.COUNTERS}) if which is ProfileVisibility.COUNTERS else None


def cut(case: CaseProfile, which: ProfileVisibility) -> CaseProfile:
    """A profile without what is not to be told: findings of other passes, and costs beside lines of code."""
    if which is not ProfileVisibility.COUNTERS:
        return case
    findings = {b: tuple(f for f in found if f.found_by is PassName.COUNTERS) for b, found in case.findings.items()}
    return replace(case, findings=findings, code={})
