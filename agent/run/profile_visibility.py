"""What the optimizer sees of profiles: all, only the counters of Nsight Compute, only what the work is bound by, or
nothing. Ablations compare them.

The compiler's facts on every build (registers, spills, notes of ptxas) always stay: moves read them to prove that they
apply, and dominated builds take no GPU time. In a controlled run profiles are kept whole, and its prompts tell a part
of them: lines of code must read alike, whatever is told of their costs.
"""

from dataclasses import replace

from pgo_agent.agent.profile.case_profile import CaseProfile
from pgo_agent.agent.run.settings import ProfileVisibility, RunSettings
from pgo_agent.sandbox.profile.kernel_profile import PassName

_PASSES = {
    ProfileVisibility.COUNTERS: frozenset({PassName.COUNTERS}),
    ProfileVisibility.BOUND: frozenset({PassName.TIMELINE}),  # a roofline needs a time
}


def passes(asked: RunSettings) -> frozenset[PassName] | None:
    """Return the passes to take; None leaves it to the profiler."""
    which = asked.profile_visibility
    if asked.controlled and asked.generations == 0:
        return frozenset(PassName)  # other runs are told of it, each what it may be told
    if asked.controlled and (asked.profile_of or which in (ProfileVisibility.NONE, ProfileVisibility.BOUND)):
        return frozenset({PassName.STATIC})  # what a change of the kernel is bound by is known: its work is the same
    return _PASSES.get(which)


def cut(case: CaseProfile, asked: RunSettings) -> CaseProfile:
    """Return a profile without what must stay hidden: findings of other passes, and the costs of lines of code."""
    which = asked.profile_visibility
    if asked.controlled or which not in _PASSES:
        return case
    findings = {
        b: tuple(f for f in of_build if which is ProfileVisibility.COUNTERS and f.found_by is PassName.COUNTERS)
        for b, of_build in case.findings.items()
    }
    return replace(case, findings=findings, code={})
