"""What the optimizer sees of profiles: all, only the counters of Nsight Compute, or nothing. Ablations compare them.

The compiler's facts on every build (registers, spills, notes of ptxas) always stay: moves read them to prove that they
apply, and dominated builds take no GPU time.
"""

from dataclasses import replace

from pgo_agent.agent.profile.case_profile import CaseProfile
from pgo_agent.agent.run.settings import ProfileVisibility
from pgo_agent.sandbox.profile.kernel_profile import PassName


def passes(which: ProfileVisibility) -> frozenset[PassName] | None:
    """Return the passes to take; None leaves it to the profiler."""
    return frozenset({PassName.COUNTERS}) if which is ProfileVisibility.COUNTERS else None


def cut(case: CaseProfile, which: ProfileVisibility) -> CaseProfile:
    """Return a profile without what must stay hidden: findings of other passes, and the costs of lines of code."""
    if which is not ProfileVisibility.COUNTERS:
        return case
    findings = {
        b: tuple(f for f in of_build if f.found_by is PassName.COUNTERS) for b, of_build in case.findings.items()
    }
    return replace(case, findings=findings, code={})
