"""The loop's nodes `profile` and `summarize`: the incumbent, once for each public case, at its best configuration.

The whole profile is in the content store and its summary in the record, so both steps can be repeated. A profile that
fails never ends a run: the record says why, and moves then work without it. Other parents of a generation are not
profiled. Relies on `profile_targets.py` for the passes, on `record/profiles.py`, on `agent/profile/summarize.py`, and
on `ask_roles.py` when a role has a model; `bottlenecks.py` passes the results to the moves.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

from pgo_agent.agent.llm.models.types import PROFILER, Suspended
from pgo_agent.agent.llm.roles.summarizer import Short
from pgo_agent.agent.profile.case_profile import CaseProfile, Wanted
from pgo_agent.agent.profile.pass_policy import EMBEDDED
from pgo_agent.agent.profile.pass_runner import AT_ONCE, GpuBudget
from pgo_agent.agent.profile.summarize import summarize as in_short
from pgo_agent.agent.profile.summary import Summary
from pgo_agent.agent.run import incumbent, steering
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.profile_targets import take, wanted
from pgo_agent.agent.run.record import profiles
from pgo_agent.agent.run.record.profiles import StoredProfile
from pgo_agent.agent.run.settings import ProfileVisibility
from pgo_agent.agent.search import ask_roles
from pgo_agent.sandbox.bundle.store import room
from pgo_agent.sandbox.errors import EnvironmentFault
from pgo_agent.sandbox.judge.spool.client import SpoolJudge, Unanswered
from pgo_agent.sandbox.profile import memo
from pgo_agent.sandbox.profile.kernel_profile import Missing, PassName
from pgo_agent.sandbox.profile.static_profile import Problem

SHARE = 0.1  # of a run's minutes: the GPU time that one incumbent's profile may take


def due(ctx: Context) -> Literal["profile", "summarize"] | None:
    """Return the step that the incumbent still needs, by the record; None when nobody uses its profile."""
    if ctx.run.facts.given or not _used(ctx):
        return None
    stored = _by_case(ctx, incumbent.name(ctx))
    lacking = {case for case in ctx.baseline().cases if case not in stored or _is_gone(ctx, stored[case])}
    if lacking and lacking & incumbent.best_known(ctx, incumbent.name(ctx)).keys():
        return "profile"
    return "summarize" if any(map(_lacks_summary, stored.values())) else None


def _used(ctx: Context) -> bool:
    """Return whether anything is made of the incumbent's profile. A controlled run makes prompts of it, no report."""
    if ctx.settings.controlled:
        return incumbent.name(ctx) == incumbent.SHIPPED or steering.room(ctx) > 0
    return ctx.settings.profile_visibility is not ProfileVisibility.NONE


def _by_case(ctx: Context, which: str) -> dict[str, StoredProfile]:
    return {k.case: k for k in profiles.of(ctx.store, ctx.run.id, which)}


def _is_gone(ctx: Context, stored: StoredProfile) -> bool:
    """Return whether it must be taken again: it has no summary yet, and the content store lost it."""
    return _lacks_summary(stored) and not profiles.there(ctx.store.contents, stored)


# profile --------------------------------------------------------------------------------------------------------------


def profile(ctx: Context) -> None:
    """Take the passes of every case of the incumbent that has none in the record, side by side.

    Raises EnvironmentFault for what a person must fix: a full disk, a process that is killed again and again.
    """
    if due(ctx) != "profile" or ctx.out_of_time():
        return
    which = incumbent.name(ctx)
    stored_by_case = _by_case(ctx, which)
    waiting = [w for w in wanted(ctx, which) if w.case not in stored_by_case or _is_gone(ctx, stored_by_case[w.case])]
    cases = "1 case" if len(waiting) == 1 else f"{len(waiting)} cases"
    ctx.emit("phase", phase="profile", doing=f"profiling {cases} of {_named(which)}")
    gpu = GpuBudget(ctx.gpu, min(SHARE * 60 * ctx.settings.minutes, ctx.gpu_left()))
    at_once = _at_once(ctx)
    for stored in _side_by_side(
        ctx, {w.case: partial(profile_case, ctx, which, w, gpu, at_once) for w in waiting}, at_once
    ):
        record = profiles.update if stored.case in stored_by_case else profiles.add
        record(ctx.store, ctx.run.id, stored)
        if not stored.taken:
            _tell(ctx, stored)


def _at_once(ctx: Context) -> int:
    """Return how many cases are profiled side by side: while one holds a GPU, others compile or decode. A model is
    asked about one case after another."""
    if ctx.gpu is None:
        return ctx.builder.cores
    return 1 if ctx.model_of(PROFILER) else max(1, min(AT_ONCE, ctx.builder.cores // 2))


def _side_by_side(
    ctx: Context, work: Mapping[str, Callable[[], StoredProfile]], at_once: int
) -> Iterable[StoredProfile]:
    if isinstance(ctx.gpu, SpoolJudge) or (ctx.gpu and at_once > 1):
        return _in_order(list(work), ctx.gpu.together(work, each=at_once))
    return memo.parallel(work.values(), at_once)


def _in_order(names: Sequence[str], results: Iterable[tuple[str, StoredProfile]]) -> Iterator[StoredProfile]:
    """Yield results in the order of `names`, each as soon as all before it are there: the record's order is the order
    of cases in prompts. Passes are stored before that, so a killed run loses nothing."""
    left, by_name = list(names), dict[str, StoredProfile]()
    for name, stored in results:
        by_name[name] = stored
        while left and left[0] in by_name:
            yield by_name[left.pop(0)]


def profile_case(ctx: Context, which: str, w: Wanted, gpu: GpuBudget, at_once: int) -> StoredProfile:
    """Take one case's passes, or say why there are none. Raises as `profile`."""
    started, digest = time.monotonic(), None
    try:
        profile = take(ctx, w, gpu, at_once, partial(ask_roles.choose, ctx), last=not steering.room(ctx))
        passes, digest = _passes(profile), profiles.put(ctx.store.contents, profile)
    except (EnvironmentFault, Suspended, Unanswered):
        raise
    except Exception as e:  # any fault of a pass: the run goes on without its answer
        passes = _failure(ctx, e)
    return StoredProfile(which, w.case, passes, round(time.monotonic() - started, 3), None, profile=digest)


def _passes(profile: CaseProfile) -> dict[str, str]:
    """Return name of each pass -> why it is missing; empty when any kernel has it."""
    absent: dict[str, str] = {}
    for name, answer in ((n, getattr(k, n)) for k in profile.kernels for n in PassName):
        why = answer.reason if isinstance(answer, Problem) else answer.why if isinstance(answer, Missing) else ""
        absent[name] = why and absent.get(name, why)
    return absent


def _failure(ctx: Context, e: Exception) -> dict[str, str]:
    room(ctx.store.root)  # raises on a full disk: then the failure is not the pass's own
    return {PassName.STATIC: f"{type(e).__name__}: {e}".strip()[:500]}


# summarize ------------------------------------------------------------------------------------------------------------


def summarize(ctx: Context) -> None:
    """Summarize every recorded profile of the incumbent, with what changed since the incumbent before it."""
    if due(ctx) is None:
        return
    which = incumbent.name(ctx)
    listed = [k for k in profiles.of(ctx.store, ctx.run.id, which) if k.taken]
    earlier = _earlier_profiles(ctx, which)
    by_case = {k.case: _in_short(ctx, k, earlier.get(k.case)) for k in listed}
    shorts = [s for s in by_case.values() if isinstance(s, Short)]
    written, author = ask_roles.summaries(ctx, shorts, _named(which))
    for stored in filter(_lacks_summary, listed):
        done = _with_summary(stored, by_case[stored.case], written.get(stored.case), author)
        profiles.update(ctx.store, ctx.run.id, done)
        _tell(ctx, done)


def _lacks_summary(stored: StoredProfile) -> bool:
    return bool(stored.taken) and stored.summary is None


def _with_summary(
    stored: StoredProfile, result: Short | dict[str, str], written: Summary | None, author: str
) -> StoredProfile:
    """Return the profile with its summary, a model's if there is one; or with the reason why there is none."""
    if not isinstance(result, Short):
        return replace(stored, passes=result)
    return replace(stored, summary=written or result.summary, author=author if written else None)


def _in_short(ctx: Context, stored: StoredProfile, earlier: CaseProfile | None) -> Short | dict[str, str]:
    """Return the rules' summary of a profile; or, by its passes, why there is none."""
    profile = profiles.whole(ctx.store.contents, stored)
    if profile is None:
        return {PassName.STATIC: profiles.NOT_KEPT}
    try:
        return Short(profile, earlier, in_short(profile, earlier))
    except Exception as e:
        return _failure(ctx, e)


def _earlier_profiles(ctx: Context, which: str) -> dict[str, CaseProfile]:
    """Return the profiles of the incumbent before this one, by case, as far as they are stored."""
    before = None if which == incumbent.SHIPPED else ctx.store.candidate(ctx.run.id, which).against
    if before is None:
        return {}
    stored = (k for k in profiles.of(ctx.store, ctx.run.id, before) if k.summary is not None)
    read = {k.case: profiles.whole(ctx.store.contents, k) for k in stored}
    return {case: profile for case, profile in read.items() if profile is not None}


def _tell(ctx: Context, stored: StoredProfile) -> None:
    summary = stored.summary
    ctx.emit(
        "profile.completed",
        candidate=stored.candidate,
        case=stored.case,
        bound=summary.bound if summary else "",
        bottleneck=summary.bottlenecks[0] if summary and summary.bottlenecks else None,
        passes=dict(stored.passes),
        seconds=stored.seconds,
        author=stored.author or EMBEDDED,
    )


def _named(which: str) -> str:
    return "the kernel as shipped" if which == incumbent.SHIPPED else f"the incumbent {which[:8]}"
