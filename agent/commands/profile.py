"""`profile`: what the kernels of a target or candidate cost, and where, by passes over builds. It judges nothing.

A profile is made of passes (`sandbox/profile/`). Their answers are stored in the workspace, so a second call is fast.
Without a GPU only the static pass and stored answers are available. `case_profile.py` profiles a case, `views/` draws.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pgo_agent.agent.commands.profile_subject import ProfileSubject
from pgo_agent.agent.profile.case_profile import CaseProfile, Means, Profile, Wanted, case_profile
from pgo_agent.agent.profile.pass_runner import AT_ONCE, NO_GPU, GpuBudget
from pgo_agent.agent.run import judge_choice
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.devices import Device
from pgo_agent.sandbox.errors import EnvironmentFault, TargetFault, UsageFault
from pgo_agent.sandbox.gate.coverage import PUBLIC
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.json_codec import Malformed, Record
from pgo_agent.sandbox.judge.interface import Judge
from pgo_agent.sandbox.judge.pool import GpuPool
from pgo_agent.sandbox.profile import memo, roofline
from pgo_agent.sandbox.profile.backend import Workbench
from pgo_agent.sandbox.profile.kernel_profile import Missing, PassName
from pgo_agent.sandbox.profile.roofline import Work
from pgo_agent.sandbox.target import Target


@dataclass(frozen=True)
class Bundled(Record):
    """The target's present text, built for its public cases."""

    bundle: str  # id; empty when nothing could be built
    configurations: dict[str, tuple[str, ...]]  # case -> labels, in the order of the file's list
    failures: tuple[str, ...]
    works: dict[str, Work]  # case -> what the target says of it; without a case of which it says nothing


def parse_passes(text: str | None) -> frozenset[PassName] | None:
    """Parse `static,timeline` into names; None for None. Raises UsageFault for an unknown name, and for no name."""
    if text is None:
        return None
    names = [n.strip() for n in text.split(",") if n.strip()]
    wrong = [n for n in names if n not in list(PassName)]
    if wrong or not names:
        problem = f"there is no pass called {', '.join(wrong)}" if wrong else "--passes names no pass"
        raise UsageFault(problem, f"there are: {', '.join(PassName)}")
    return frozenset(PassName(n) for n in names)


def profile(
    subject: ProfileSubject,
    asked: RunSettings,
    configuration: str | None,
    backend: str,
    store: Store,
    wanted: frozenset[PassName] | None = None,
    seconds: float = 60.0,
) -> Profile:
    """Return the profile of a target, or a candidate, at one configuration of each case.

    `wanted`: passes; None leaves them to the profiler's role. `seconds`: of the GPU, for all that is not stored yet.

    Raises UsageFault for an unknown case, configuration or backend, and a candidate for another device, TargetFault
    when nothing of the target builds, EnvironmentFault for the sandbox, the disk, and a GPU that is asked for and
    missing.
    """
    judge, device = judge_choice.choose(asked)
    try:
        subject.fits(device)
        _open(judge, subject.target, wanted)
        cores = len(os.sched_getaffinity(0))
        box.expect(subject.target.source, subject.target.contract)
        builder = Builder(subject.target, device, box.choose(asked.sandbox, asked.python), store.contents, cores)
        built = _built(Workbench(builder), subject, asked.cases)
        _must_exist(built, asked.cases)
        chosen = _configurations(store, subject, built, configuration)
        cases = _taken(builder, GpuBudget(judge, seconds), wanted, chosen, backend)
    finally:
        if judge is not None:
            judge.close()
    cases = tuple(_with_floor(case, built, device) for case in cases)
    return Profile(subject.target.name, device.key, built.bundle, cases, built.failures)


def _open(judge: Judge | None, subject: Target, wanted: frozenset[PassName] | None) -> None:
    """Give the judge its target. Raises EnvironmentFault for passes that need a GPU when none is used."""
    on_gpu = sorted((wanted or frozenset()) - {PassName.STATIC})
    if on_gpu and judge is None:
        raise EnvironmentFault(f"{' and '.join(on_gpu)} cannot be taken: {NO_GPU}", "leave out --passes, or use a GPU")
    if judge is not None:
        judge.target = subject
    if isinstance(judge, GpuPool):
        judge.begin(_tell, lambda _gpu, _why: None, ())


def _taken(
    builder: Builder, gpu: GpuBudget, wanted: frozenset[PassName] | None, chosen: Sequence[Wanted], backend: str
) -> tuple[CaseProfile, ...]:
    """Profile each case, in this order; with a GPU side by side."""
    at_once = AT_ONCE if gpu.judge else 1
    means = Means(replace(builder, cores=max(1, builder.cores // at_once)), gpu, wanted)
    work = {w.case: partial(case_profile, means, w, backend) for w in chosen}
    profiles = dict(gpu.judge.together(work, each=at_once)) if gpu.judge else {c: take() for c, take in work.items()}
    return tuple(profiles[w.case] for w in chosen)


def _tell(kind: str, **fields: Any) -> None:
    """Print what the GPUs report."""
    what = f"is in use by {fields['holder']}: waiting" if kind == "gpu.waiting" else f"is left out: {fields['why']}"
    print(f"GPU {fields['index']} {what}", file=sys.stderr, flush=True)


@memo.kept("pgo_agent.agent.profiling.bundled", version=2)
def bundled(bench: Workbench, source: str, contract: str, cases: tuple[str, ...]) -> Bundled:
    """Build every configuration of the file's own list. `contract`: the target's text, part of the key; no `cases`:
    all public ones.
    """
    b = bench.builder
    built = b.build(source, {"CASES": list(cases) or None}, None, b.cores)
    labels = {case: tuple(o.label for o in options) for case, options in built.choices.items()}
    failures = tuple(f"{f.case}: {f.message}" if f.case else f.message for f in built.failures)
    return Bundled(built.bundle, labels, failures, _works(built.described))


def _built(bench: Workbench, subject: ProfileSubject, cases: tuple[str, ...]) -> Bundled:
    """Return the target's builds, or a candidate's with what the target says of its work."""
    own = bundled(bench, subject.target.source, subject.target.contract, cases)
    if not subject.bundle:
        return own
    labels = {c: ls for c, ls in subject.configurations.items() if not cases or c.removeprefix(PUBLIC) in cases}
    return Bundled(subject.bundle, labels, (), own.works)


def _configurations(store: Store, subject: ProfileSubject, built: Bundled, wanted: str | None) -> list[Wanted]:
    why = "the best of the last run"
    best: Mapping[str, tuple[str, ...]] = _tuned(store, subject.target)
    if subject.bundle:
        why, best = "the one that its run chose", {c: (label,) for c, label in subject.chosen.items()}
    chosen = [_chosen(subject.source, built, case, wanted, best, why) for case in built.configurations]
    return [replace(w, untrusted=subject.untrusted) for w in chosen]


def _works(described: object) -> dict[str, Work]:
    try:
        return {case: work for case, work in roofline.of_described(described).items() if case.startswith(PUBLIC)}
    except Malformed:
        return {}


def _with_floor(case: CaseProfile, built: Bundled, device: Device) -> CaseProfile:
    """Return a case that was not timed with the least time of its work."""
    known = built.works.get(case.case)
    return replace(case, floor=roofline.floor(known, device)) if isinstance(case.roofline, Missing) and known else case


def _must_exist(built: Bundled, wanted: Sequence[str]) -> None:
    missing = [c for c in wanted if f"CASES/{c}" not in built.configurations]
    if not built.bundle or missing:
        problem = built.failures[0] if built.failures else f"it has no public case {', '.join(missing)}"
        raise TargetFault(
            f"nothing to profile: {problem}", "`pgo-agent optimize FILE` lists the cases, or fix the file"
        )


def _tuned(store: Store, subject: Target) -> Mapping[str, tuple[str, str]]:
    """Return case -> the best configuration of its launch grid, and of the file's own list, from the last run of this
    file; empty without one."""
    baselines = [r.baseline for r in store.runs() if r.digest == subject.digest and r.baseline]
    return {c: (p.choice, baselines[-1].shipped[c].choice) for c, p in baselines[-1].tuned.items()} if baselines else {}


def _chosen(
    source: str, built: Bundled, case: str, wanted: str | None, tuned: Mapping[str, tuple[str, ...]], best_why: str
) -> Wanted:
    labels = built.configurations[case]
    if wanted is not None and wanted not in labels:
        raise UsageFault(f"{case} has no configuration '{wanted}'", f"it has: {'; '.join(labels)}")
    best = next((label for label in tuned.get(case, ()) if label in labels), None)
    label, why = (wanted, "as asked") if wanted else (labels[0], "the first of the file's list")
    if wanted is None and best is not None:
        label, why = best, best_why
    return Wanted(source, built.bundle, case, label, why)
