"""The profile of one case of a bundle: the passes of each kernel, and the findings and roofline of the case.

`pass_runner.py` takes the passes, cheapest first. The roofline needs a time of the whole case: that of the plain
launches between the instrumented ones of a timeline. It is no evidence of speed, which only the gate gives.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pgo_agent.agent.profile import pass_policy
from pgo_agent.agent.profile.findings import Finding, standing_out, traffic
from pgo_agent.agent.profile.pass_policy import Choice, Decision, Situation, Taken
from pgo_agent.agent.profile.pass_runner import NO_GPU, GpuBudget, KernelPasses
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.json_codec import OPTIONAL, Record
from pgo_agent.sandbox.judge.questions import PeakRates, Peaks
from pgo_agent.sandbox.judge.spool.client import Unanswered
from pgo_agent.sandbox.profile import critical_path, gpu_passes, instructions_per_cycle, roofline, static
from pgo_agent.sandbox.profile.backend import Subject
from pgo_agent.sandbox.profile.gpu_passes import GpuPassContext, NotTaken
from pgo_agent.sandbox.profile.kernel_profile import KernelProfile, LaunchCount, Missing, PassName, Roofline
from pgo_agent.sandbox.profile.pseudocode import pseudocode
from pgo_agent.sandbox.profile.roofline import Floor
from pgo_agent.sandbox.profile.static_profile import StaticProfile
from pgo_agent.sandbox.profile.timeline.instrumented_build import KernelRef
from pgo_agent.sandbox.profile.timeline.types import Timeline

Choosing = Callable[[str, Situation], Choice | None]  # of a case
HOW = "calls of the launcher between recorded ones"
BY_THE_RUN = "timed by the run"


@dataclass(frozen=True)
class Wanted:
    """What to profile: one configuration of a case in a bundle."""

    source: str  # the text that the bundle was built from
    bundle: str  # id
    case: str  # set and name
    label: str
    why: str  # this configuration
    untrusted: bool = False  # whether anybody but the embedded moves wrote the source
    together: tuple[str, ...] = ()  # cases that one trace of the source covers; empty: this one
    call_ms: float | None = None  # of a call, as the run measured it; None: it has not


@dataclass(frozen=True)
class CaseProfile(Record):
    """The kernels of one case at one configuration, each once, in launch order."""

    case: str
    configuration: str
    chosen: str  # why this one
    kernels: tuple[KernelProfile, ...]
    findings: dict[str, tuple[Finding, ...]]  # key of a kernel's build -> its findings
    code: dict[str, str]  # key of a kernel's build -> its TTGIR as pseudo-code; nothing for another architecture's
    roofline: Roofline | Missing
    decisions: dict[str, tuple[Decision, ...]]  # key of a kernel's build -> which passes were taken, and why
    floor: Floor | None = field(default=None, metadata=OPTIONAL)  # where nothing was timed


@dataclass(frozen=True)
class Means:
    """What is needed to take passes."""

    builder: Builder
    gpu: GpuBudget
    passes: frozenset[PassName] | None = None  # those that are wanted; None leaves it to the profiler
    choose: Choosing | None = None  # who is asked before the rules
    unwanted: str = field(default=pass_policy.UNWANTED, kw_only=True)  # why other passes are left out

    @property
    def context(self) -> GpuPassContext:
        return GpuPassContext(self.builder, self.gpu.held)


def case_profile(means: Means, w: Wanted, backend: str = "nvidia") -> CaseProfile:
    """Take the passes of a case and return its profile. Raises what the passes raise."""
    context, where = means.context, (w.source, w.bundle, w.case, w.label)
    context.builder.box.admit(w.untrusted)
    subjects = static.subjects_of(context, *where, w.together)
    static.of_subjects(context, subjects, backend)  # builds all side by side; each is then read alone
    launches = _launches(context.contents.manifest(w.bundle)["plans"][w.case][w.label]["steps"])
    taken = _of_all(means, w, subjects, backend)
    kernels = tuple(_whole(context, build, t, launches[build]) for build, t in taken.items())
    findings = {k.build: standing_out(k, context.builder.device) for k in kernels}
    if most := max(kernels, key=_moved, default=None):
        findings[most.build] += _traffic(context, w.case, kernels)
    code = {s.build: _code(context, s, taken[s.build]) for s in subjects if backend == "nvidia"}
    decisions = {build: t.decisions for build, t in taken.items()}
    return CaseProfile(w.case, w.label, w.why, kernels, findings, code, _roofline(means, w, kernels), decisions)


def _of_all(means: Means, w: Wanted, subjects: Sequence[Subject], backend: str) -> dict[str, Taken]:
    """Return the passes of every kernel. A judge elsewhere is asked about all of them before any of them waits."""
    taken, waiting = dict[str, Taken](), list[Unanswered]()
    for s in subjects:
        try:
            taken[s.build] = _taken(means, w, s, backend)
        except Unanswered as e:
            waiting.append(e)
    if not waiting:
        return taken
    if not gpu_passes.peaks.known(means.context, w.case, means.context.builder.target.contract):
        means.gpu.held().queue(Peaks(w.case))  # which the roofline needs
    raise waiting[0]


def _taken(means: Means, w: Wanted, subject: Subject, backend: str) -> Taken:
    place = KernelRef(w.bundle, w.case, w.label, subject.build)
    kernel = KernelPasses(means.context, means.gpu, subject, place, backend)
    if means.passes and PassName.COUNTERS in means.passes:
        kernel.announce()
    choose = partial(means.choose, w.case) if means.choose else None
    return pass_policy.take(kernel, means.gpu.left, means.passes, choose, means.unwanted)


def _whole(context: GpuPassContext, build: str, t: Taken, launch: LaunchCount) -> KernelProfile:
    name = t.static.kernel if isinstance(t.static, StaticProfile) else build[:12]
    if isinstance(t.timeline, Missing):
        absent = (Missing(n, f"it needs the timeline: {t.timeline.why}") for n in (critical_path.NAME, "ipc"))
        return KernelProfile(build, name, launch, t.static, t.timeline, t.counters, *absent)
    timeline = t.timeline
    if isinstance(t.static, StaticProfile):
        timeline = timeline.placed(t.static.file, t.static.sources)
    path = critical_path.of_build(context, build, timeline)
    rates = instructions_per_cycle.ipc(
        instructions_per_cycle.counts(context, [p.build for p in timeline.passes]), timeline
    )
    return KernelProfile(build, name, launch, t.static, timeline, t.counters, path, rates)


def _code(context: GpuPassContext, subject: Subject, t: Taken) -> str:
    timeline = None if isinstance(t.timeline, Missing) else t.timeline
    return pseudocode(context, subject, timeline, None if isinstance(t.counters, Missing) else t.counters)


def _traffic(context: GpuPassContext, case: str, kernels: Sequence[KernelProfile]) -> tuple[Finding, ...]:
    """Whether a case moves more than it needs, where every kernel of it was counted."""
    if any(isinstance(k.counters, Missing) for k in kernels):
        return ()
    work = roofline.work_of(context, case)
    return () if isinstance(work, Missing) else traffic(sum(map(_moved, kernels)), work.bytes)


def _moved(k: KernelProfile) -> float:
    """The bytes of all launches of a kernel through device memory, as far as they were counted."""
    return 0.0 if isinstance(k.counters, Missing) else (k.counters.dram_bytes or 0.0) * k.launch.count


def _roofline(means: Means, w: Wanted, kernels: Sequence[KernelProfile]) -> Roofline | Missing:
    """Return the roofline by the time that the run measured, else by the calls that a timeline timed: these begin with
    cold caches, and of a short call the launches are most."""
    context, asked = means.context, (w.case, means.builder.target.contract)
    calls = [ms for k in kernels if isinstance(k.timeline, Timeline) for ms in k.timeline.plain_ms]
    ms, how = (w.call_ms, BY_THE_RUN) if w.call_ms or not calls else (statistics.median(calls), HOW)
    if ms is None or not (calls or _at_hand(means) or gpu_passes.peaks.known(context, *asked)):
        return Missing(
            roofline.NAME, next((k.timeline.why for k in kernels if isinstance(k.timeline, Missing)), NO_GPU)
        )
    try:
        reached: PeakRates | Missing = gpu_passes.peaks(context, *asked)
    except NotTaken as e:
        reached = Missing(roofline.NAME, str(e))
    return roofline.of_case(roofline.work_of(context, w.case), ms / 1e3, how, reached)


def _at_hand(means: Means) -> bool:
    """Whether a judge answers at once: peaks alone are not worth a way to another machine."""
    return means.gpu.judge is not None and not means.gpu.judge.elsewhere


def _launches(steps: Sequence[Mapping[str, Any]]) -> dict[str, LaunchCount]:
    """Key of a kernel's build -> its launch count."""
    grids: dict[str, list[int]] = {}
    for step in steps:
        if "kernel" in step:
            grids.setdefault(step["kernel"], []).append(math.prod(step["grid"]))
    return {build: LaunchCount(max(blocks), len(blocks)) for build, blocks in grids.items()}


@dataclass(frozen=True)
class Profile(Record):
    """The result of the command `profile`."""

    target: str
    device: str  # key of the one that was compiled for
    bundle: str
    cases: tuple[CaseProfile, ...]
    failures: tuple[str, ...]  # of configurations that do not build
