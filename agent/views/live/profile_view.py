"""Reads from the content store what a run stored: the incumbent's timeline and profile, and readable TTGIR. It measures
nothing.

A timeline needs a GPU; without one there are no strips, and the record says why. Relies on `record/profiles.py`.
"""

import os

from pgo_agent.agent.profile.case_profile import CaseProfile
from pgo_agent.agent.proposal import ttgir_view
from pgo_agent.agent.run import incumbent, target_file
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.record import profiles as profile_record
from pgo_agent.agent.run.record.profiles import StoredProfile
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.views.profile import timeline_terminal
from pgo_agent.sandbox import devices
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.judge.gpu_judge import GpuJudge
from pgo_agent.sandbox.profile.kernel_profile import Missing, PassName
from rich.text import Text


def context(store: Store, name: str) -> Context:
    """Return a context that reads a run as the loop does, without GPU, model and listener. Raises TargetMoved."""
    run = store.run(name)
    subject = target_file.unmoved(run)
    python, sandbox = run.settings.python, run.settings.sandbox
    device = devices.find(run.device)
    builder = Builder(subject, device, box.choose(sandbox, python), store.contents, len(os.sched_getaffinity(0)))
    cpu = GpuJudge(subject, python, None, sandbox, device.key)
    return Context(store, run, subject, device, builder, None, None, cpu, lambda event: None)


def profiles(store: Store, name: str, case: str = "") -> list[tuple[StoredProfile, CaseProfile]]:
    """Return the incumbent's profiles: of each public case, or of the named one. Raises UsageFault without any."""
    ctx = context(store, name)
    if store.run(name).baseline is None:
        raise UsageFault("nothing is profiled yet: the baselines come first", "wait for them, then ask again")
    which = incumbent.name(ctx)
    stored = {k.case.split("/", 1)[1]: k for k in profile_record.of(store, ctx.run.id, which) if k.taken}
    wanted = [k for name, k in stored.items() if case in ("", name)]
    if not wanted:
        names = ", ".join(stored)
        raise UsageFault(
            f"no profile of {case or which[:8]} is there", f"there are: {names}" if names else "wait for it"
        )
    read = ((k, profile_record.whole(store.contents, k)) for k in wanted)
    if there := [(k, profile) for k, profile in read if profile is not None]:
        return there
    raise UsageFault(f"of {case or which[:8]} only a summary is there: {profile_record.NOT_KEPT}", "see /show")


def ttgir(store: Store, name: str, which: str) -> str:
    """Return the kernel that does the work of `shipped` or a candidate, as pseudo-code. Raises UsageFault when it is
    not built, and when our reader refuses it.
    """
    ctx = context(store, name)
    if which != incumbent.SHIPPED and not store.candidate(ctx.run.id, which).has_bundle:
        raise UsageFault(f"{which[:8]} is not built", "wait until it is, or see /evidence for what went wrong")
    if store.run(name).baseline is None:
        raise UsageFault("nothing is built yet", "wait for the baselines, then ask again")
    shown = ttgir_view.shown(ctx, which)
    if shown is None:
        raise UsageFault("our reader does not understand its TTGIR", f"`pgo-agent show {name} {which[:8]} --ttgir DIR`")
    return f"{shown.name} in {shown.case.split('/', 1)[1]}\n{shown.view.text()}"


def strips(store: Store, name: str, width: int) -> list[Text]:
    """Return the lanes of the first public case that has a timeline, and their legend; empty without one."""
    ctx = context(store, name)
    which = incumbent.name(ctx)
    timed = (k for k in profile_record.of(store, ctx.run.id, which) if PassName.TIMELINE in k.taken)
    profile = next((p for p in (profile_record.whole(store.contents, k) for k in timed) if p is not None), None)
    drawn = ((k, k.timeline) for k in (profile.kernels if profile else ()) if not isinstance(k.timeline, Missing))
    return next((timeline_terminal.strips(k, t, width) for k, t in drawn), [])
