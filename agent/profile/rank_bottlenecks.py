"""Ranks the findings of a case by cost: the order in which a summary names them.

The rules, in this order:

1. A section of a timeline is worth its share of the kernel's time, times the kernel's share of the case if known. The
   section that does the work of the roof (dots if bound by compute, copies and the epilogue if bound by memory) counts
   only with what exceeds the reached share of the roof: no kernel can avoid the rest.
2. If another pass found a defect that explains a section (`EXPLAINS`), that defect takes its place, with its whole
   share, as the work need not take so long. Each defect explains one section, the costliest.
3. Findings of other passes with a share of their own stand among the sections.
4. After all that are worth at least LEAST come those without a time in their fixed order, those of minor kernels last,
   and of a kind those first that there are most of; then the sections that are worth less.

Shares of different passes have different bases: cycles of a block, time of the SMs, samples of warps. They are compared
as upper bounds of the possible gain. An explanation is an inference; the text names the pass of each statement.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from pgo_agent.agent.profile.case_profile import CaseProfile
from pgo_agent.agent.profile.findings import EXPLAINS, Defect, Finding
from pgo_agent.agent.profile.findings.timeline import LEAST
from pgo_agent.agent.profile.summary import Bottleneck
from pgo_agent.sandbox.profile.kernel_profile import KernelProfile, Missing, PassName, Roofline
from pgo_agent.sandbox.profile.static_profile import StaticProfile
from pgo_agent.sandbox.profile.timeline.types import Timeline

MINOR = 0.1  # of the case's time: a kernel that takes less
COUNTED = frozenset({Defect.SPILL, Defect.SYNCHRONOUS, Defect.CONVERTING, Defect.CONVERSION, Defect.ATOMICS})
NEEDED = {"compute": frozenset({Defect.DOT_WAIT}), "memory": frozenset({Defect.COPY_WAIT, Defect.EPILOGUE})}


@dataclass(frozen=True)
class Ranked:
    bottleneck: Bottleneck
    section: Finding | None = None  # the section that it explains and replaces
    worth: float | None = None  # upper bound of the gain, as a share of the case's time; None: nothing was timed
    minor: bool = False  # of a kernel that takes less than MINOR


def ranked(case: CaseProfile) -> tuple[Ranked, ...]:
    """Return all findings of all kernels, the costliest first."""
    weight = weights(case)
    listed = [r for k in case.kernels for r in _of_kernel(case, k, weight)]
    order = list(Defect)

    def key(r: Ranked) -> tuple[int, float, bool, int, float]:
        f = r.bottleneck.finding
        index, much = order.index(f.defect), -f.figure if f.defect in COUNTED else 0.0
        if r.worth is None:
            return 1, 0.0, r.minor, index, much
        return (0 if r.worth >= LEAST else 2), -r.worth, r.minor, index, much

    return tuple(sorted(listed, key=key))


def weights(case: CaseProfile) -> dict[str, float]:
    """Return build -> share of the case's GPU time, by the instrumented launches, else by those that Nsight Compute
    replayed; empty if neither covers every kernel.
    """
    _, of_launch = launch_ns(case)
    times = {k.build: of_launch[k.build] * k.launch.count for k in case.kernels if of_launch}
    return {build: t / sum(times.values()) for build, t in times.items()}


def launch_ns(case: CaseProfile) -> tuple[str, dict[str, float]]:
    """Return how launches were timed, and build -> nanoseconds of one; nothing if no way covers every kernel."""
    for how, ns in (("while a timeline is recorded", _span_ns), ("under Nsight Compute", _replayed_ns)):
        times = {k.build: ns(k) for k in case.kernels}
        if times and min(times.values()) > 0:
            return how, times
    return "", {}


def leading(case: CaseProfile) -> KernelProfile | None:
    """Return the kernel that takes most time, as far as known; None for a case without kernels."""
    weight = weights(case)
    return max(case.kernels, key=lambda k: (weight.get(k.build, 0.0), _tensor(k)), default=None)


def _of_kernel(case: CaseProfile, k: KernelProfile, weight: dict[str, float]) -> Iterator[Ranked]:
    findings, share = case.findings.get(k.build, ()), weight.get(k.build, 1.0)
    minor = share < MINOR if weight else not _tensor(k) and any(_tensor(o) for o in case.kernels)
    rest = [f for f in findings if f.found_by is not PassName.TIMELINE]
    for section in sorted((f for f in findings if f not in rest), key=lambda f: -_left(f, case)):
        cause = _cause(section, rest)
        if cause:
            rest.remove(cause)
        worth = (section.share or 0.0) if cause else _left(section, case)
        named = Bottleneck(k.kernel, cause or section, section.share)
        yield Ranked(named, section if cause else None, worth * share, minor)
    for f in rest:
        yield Ranked(Bottleneck(k.kernel, f, f.share), None, None if f.share is None else f.share * share, minor)


def _cause(section: Finding, rest: list[Finding]) -> Finding | None:
    """The finding that explains a section; of several the one that usually costs most."""
    causes = EXPLAINS.get(section.defect, ())
    return min((f for f in rest if f.defect in causes), key=lambda f: causes.index(f.defect), default=None)


def _left(section: Finding, case: CaseProfile) -> float:
    """The part of a section's share that the work does not need."""
    share, roof = section.share or 0.0, case.roofline
    needed = isinstance(roof, Roofline) and section.defect in NEEDED[roof.bound]
    return max(0.0, share - roof.reached) if needed and isinstance(roof, Roofline) else share


def _tensor(k: KernelProfile) -> int:
    return k.static.kinds.get("tensor", 0) if isinstance(k.static, StaticProfile) else 0


def _span_ns(k: KernelProfile) -> float:
    return k.timeline.waves.span_ns if isinstance(k.timeline, Timeline) and k.timeline.waves else 0.0


def _replayed_ns(k: KernelProfile) -> float:
    return 0.0 if isinstance(k.counters, Missing) else k.counters.duration_ns
