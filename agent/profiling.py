"""`profile`: what the kernels of a target cost and where, by passes over its builds. It judges and records nothing.

A profile is made of passes (`sandbox/profile/`), whose answers are kept in the workspace: asked again, it is there at
once. Without a GPU there is the static one. `views/` draws what this gathers.
"""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pgo_agent.agent.findings import Finding, standing_out
from pgo_agent.agent.session import DEFAULT_DEVICE, Wishes, locate
from pgo_agent.agent.store import Store
from pgo_agent.sandbox import box, devices, target
from pgo_agent.sandbox.build import Builder
from pgo_agent.sandbox.errors import EnvironmentFault, TargetFault, UsageFault
from pgo_agent.sandbox.judge import pool
from pgo_agent.sandbox.profile import passes, static
from pgo_agent.sandbox.profile.backend import Workbench
from pgo_agent.sandbox.profile.codec import Record
from pgo_agent.sandbox.profile.pseudocode import pseudocode
from pgo_agent.sandbox.profile.report import Problem, StaticProfile
from pgo_agent.sandbox.profile.whole import KernelProfile, Launch, Missing, PassName, Roofline

NO_GPU = "no GPU is visible here"


@dataclass(frozen=True)
class Bundled(Record):
    """A target as it stands, built for its public cases."""

    bundle: str  # id; empty when nothing could be built
    configurations: dict[str, tuple[str, ...]]  # case -> labels, in the order of the file's list
    failures: tuple[str, ...]


@dataclass(frozen=True)
class Wanted:
    """What to profile: one configuration of a case in a bundle."""

    source: str  # the text that the bundle was built from
    bundle: str  # id
    case: str  # set and name
    label: str
    why: str  # this configuration
    foreign: bool = False  # whether somebody else wrote the source
    together: tuple[str, ...] = ()  # cases that one trace of the source is of; empty: this one


@dataclass(frozen=True)
class CaseProfile(Record):
    """The kernels of one case at one configuration, each once, in the order that they are launched in."""

    case: str
    configuration: str
    chosen: str  # why this one
    kernels: tuple[KernelProfile, ...]
    findings: dict[str, tuple[Finding, ...]]  # key of a kernel's build -> what stands out in it
    code: dict[str, str]  # key of a kernel's build -> its TTGIR as pseudo-code; nothing for another architecture's
    roofline: Roofline | Missing


@dataclass(frozen=True)
class Profile(Record):
    """What `profile` found."""

    target: str
    device: str  # key of the one that was compiled for
    bundle: str
    cases: tuple[CaseProfile, ...]
    failures: tuple[str, ...]  # of configurations that do not build


def passes_of(text: str | None) -> frozenset[PassName] | None:
    """`static,timeline` as names; None for None. Raises UsageFault for an unknown name, and for no name at all."""
    if text is None:
        return None
    names = [n.strip() for n in text.split(",") if n.strip()]
    wrong = [n for n in names if n not in list(PassName)]
    if wrong or not names:
        told = f"there is no pass called {', '.join(wrong)}" if wrong else "--passes names no pass"
        raise UsageFault(told, f"there are: {', '.join(PassName)}")
    return frozenset(PassName(n) for n in names)


def profile(
    file: Path,
    wishes: Wishes,
    configuration: str | None,
    backend: str,
    store: Store,
    *,
    passes: frozenset[PassName] | None = None,
    seconds: float = 60.0,
) -> Profile:
    """The profile of a target at one configuration of each case.

    `passes`: those that are wanted; None: all that this machine can take. `seconds`: of the GPU, at most.

    Raises UsageFault for a file, case, configuration or backend that is none, TargetFault when nothing of the target
    builds, EnvironmentFault for the sandbox, the disk, and a GPU that is asked for and is not there.
    """
    on_gpu = sorted((passes or frozenset()) - {PassName.STATIC})
    if on_gpu and pool.visible_gpu() is None:
        raise EnvironmentFault(f"{' and '.join(on_gpu)} cannot be taken: {NO_GPU}", "leave out --passes, or use a GPU")
    found = target.read(locate(file))
    device = devices.find(wishes.device or DEFAULT_DEVICE)
    cores = len(os.sched_getaffinity(0))
    bench = Workbench(Builder(found, device, box.choose(wishes.sandbox, wishes.python), store.shelf, cores))
    built = bundled(bench, found.source, found.contract, tuple(wishes.cases))
    _must_exist(built, wishes.cases)
    tuned = _tuned(store, found)
    cases = [_case(bench, found.source, built, case, configuration, tuned, backend) for case in built.configurations]
    return Profile(found.name, device.key, built.bundle, tuple(cases), built.failures)


@passes.cpu(version=1)
def bundled(bench: Workbench, source: str, contract: str, cases: tuple[str, ...]) -> Bundled:
    """Builds every configuration of the file's own list. `contract`: the target's text, part of the key; no `cases`:
    all public ones.
    """
    b = bench.builder
    built = b.build(source, {"CASES": list(cases) or None}, None, b.cores)
    labels = {case: tuple(o.label for o in options) for case, options in built.choices.items()}
    failures = tuple(f"{f.case}: {f.message}" if f.case else f.message for f in built.failures)
    return Bundled(built.bundle, labels, failures)


def _must_exist(built: Bundled, wanted: Sequence[str]) -> None:
    missing = [c for c in wanted if f"CASES/{c}" not in built.configurations]
    if not built.bundle or missing:
        told = built.failures[0] if built.failures else f"it has no public case {', '.join(missing)}"
        raise TargetFault(f"nothing to profile: {told}", "`pgo-agent optimize FILE` lists the cases, or mend the file")


def _tuned(store: Store, found: target.Target) -> Mapping[str, str]:
    """Case -> the best configuration of its launch grid, by the last run of this very file; nothing without one."""
    runs = [r for r in store.runs() if r.digest == found.digest and r.baseline]
    return {c: p["choice"] for c, p in (runs[-1].baseline or {})["tuned"].items()} if runs else {}


def _case(
    bench: Workbench,
    source: str,
    built: Bundled,
    case: str,
    wanted: str | None,
    tuned: Mapping[str, str],
    backend: str,
) -> CaseProfile:
    labels = built.configurations[case]
    if wanted is not None and wanted not in labels:
        raise UsageFault(f"{case} has no configuration '{wanted}'", f"it has: {'; '.join(labels)}")
    best = tuned.get(case)
    label, why = (wanted, "as asked") if wanted else (labels[0], "the first of the file's list")
    if wanted is None and best in labels:
        label, why = str(best), "the best of the last run"
    return case_profile(bench, Wanted(source, built.bundle, case, label, why), backend)


def case_profile(bench: Workbench, w: Wanted, backend: str = "nvidia") -> CaseProfile:
    """What every pass says of a case. Raises what passes raise."""
    where = (bench, w.source, w.bundle, w.case, w.label)
    statics = static.profile_static(*where, backend, w.foreign, w.together)
    launches = _launches(bench.shelf.manifest(w.bundle)["plans"][w.case][w.label]["steps"])
    kernels = tuple(_whole(k, build, launches[build]) for build, k in statics.items())
    found = {k.build: standing_out(k, bench.builder.device) for k in kernels}
    subjects = static.subjects_of(*where, w.together) if backend == "nvidia" else ()
    code = {s.build: pseudocode(bench, s) for s in subjects}
    return CaseProfile(w.case, w.label, w.why, kernels, found, code, Missing("roofline", NO_GPU))


def _whole(k: StaticProfile | Problem, build: str, launch: Launch) -> KernelProfile:
    name = k.kernel if isinstance(k, StaticProfile) else build[:12]
    missing = (Missing(n, NO_GPU) for n in ("timeline", "counters", "critical path", "ipc"))
    return KernelProfile(build, name, launch, k, *missing)


def _launches(steps: Sequence[Mapping[str, Any]]) -> dict[str, Launch]:
    """By the key of the kernel's build."""
    grids: dict[str, list[int]] = {}
    for step in steps:
        if "kernel" in step:
            grids.setdefault(step["kernel"], []).append(math.prod(step["grid"]))
    return {build: Launch(max(blocks), len(blocks)) for build, blocks in grids.items()}
