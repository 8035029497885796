"""The loop's nodes `profile` and `summarize`: the incumbent, once for each public case, at its best configuration.

A profile is kept whole in the content store and in short in the record, so both steps can be repeated. A profile that
cannot be taken never ends a run: the record says why, and moves then fire without it. Other parents of a generation are
not profiled. Relies on `profile_targets.py` for the passes, on `record/profiles.py`, on `agent/profile/summarize.py`,
and on `llm_roles.py` where a role is a model's; `bottlenecks.py` hands what comes of it to the moves.
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
from pgo_agent.agent.search import llm_roles
from pgo_agent.sandbox.bundle.store import room
from pgo_agent.sandbox.errors import EnvironmentFault
from pgo_agent.sandbox.judge.spool.client import SpoolJudge, Unanswered
from pgo_agent.sandbox.profile import memo
from pgo_agent.sandbox.profile.kernel_profile import Missing, PassName
from pgo_agent.sandbox.profile.static_profile import Problem

SHARE = 0.1  # of a run's minutes: what one incumbent's profile may take of the GPU


def due(ctx: Context) -> Literal["profile", "summarize"] | None:
    """The step that the incumbent still needs, by the record. Who proposes nothing, or is told nothing, needs none."""
    if ctx.run.facts.given or ctx.settings.profile_visibility is ProfileVisibility.NONE:
        return None
    stored = _by_case(ctx, incumbent.name(ctx))
    if any(case not in stored or _is_gone(ctx, stored[case]) for case in ctx.baseline().cases):
        return "profile"
    return "summarize" if any(map(_waits, stored.values())) else None


def _by_case(ctx: Context, which: str) -> dict[str, StoredProfile]:
    return {k.case: k for k in profiles.of(ctx.store, ctx.run.id, which)}


def _is_gone(ctx: Context, stored: StoredProfile) -> bool:
    """Whether it has to be taken again: nothing was made of it yet, and it is not in the content store any more."""
    return _waits(stored) and not profiles.there(ctx.store.contents, stored)


# profile --------------------------------------------------------------------------------------------------------------


def profile(ctx: Context) -> None:
    """Takes the passes of every case of the incumbent that has none in the record, side by side.

    Raises EnvironmentFault for what a person must mend: a full disk, a process that is killed again and again.
    """
    if due(ctx) != "profile" or ctx.out_of_time():
        return
    which = incumbent.name(ctx)
    known = _by_case(ctx, which)
    waiting = [w for w in wanted(ctx, which) if w.case not in known or _is_gone(ctx, known[w.case])]
    cases = "1 case" if len(waiting) == 1 else f"{len(waiting)} cases"
    ctx.emit("phase", phase="profile", doing=f"profiling {cases} of {_named(which)}")
    gpu = GpuBudget(ctx.gpu, min(SHARE * 60 * ctx.settings.minutes, ctx.gpu_left()))
    at_once = _at_once(ctx)
    for stored in _side_by_side(ctx, {w.case: partial(taken, ctx, which, w, gpu, at_once) for w in waiting}, at_once):
        record = profiles.update if stored.case in known else profiles.add
        record(ctx.store, ctx.run.id, stored)
        if not stored.taken:
            _tell(ctx, stored)


def _at_once(ctx: Context) -> int:
    """Cases whose passes are taken side by side: where one holds a GPU, others are compiled for, or decoded. A model is
    asked of one case after another."""
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
    """What is there of each, as soon as those before it are: prompts tell of cases in the order of the record. Passes
    are kept before that, so a run that is killed loses nothing."""
    left, there = list(names), dict[str, StoredProfile]()
    for name, stored in results:
        there[name] = stored
        while left and left[0] in there:
            yield there[left.pop(0)]


def taken(ctx: Context, which: str, w: Wanted, gpu: GpuBudget, at_once: int) -> StoredProfile:
    """One case's passes, or why there are none. Raises as `profile`."""
    started, digest = time.monotonic(), None
    try:
        profile = take(ctx, w, gpu, at_once, partial(llm_roles.choose, ctx), last=not steering.room(ctx))
        passes, digest = _passes(profile), profiles.put(ctx.store.contents, profile)
    except (EnvironmentFault, Suspended, Unanswered):
        raise
    except Exception as e:  # whatever a pass stumbles over: the run goes on without its answer
        passes = _lost(ctx, e)
    return StoredProfile(which, w.case, passes, round(time.monotonic() - started, 3), None, profile=digest)


def _passes(profile: CaseProfile) -> dict[str, str]:
    """Name of each pass -> why it is not there; empty where it is there of any kernel."""
    absent: dict[str, str] = {}
    for name, answer in ((n, getattr(k, n)) for k in profile.kernels for n in PassName):
        why = answer.reason if isinstance(answer, Problem) else answer.why if isinstance(answer, Missing) else ""
        absent[name] = why and absent.get(name, why)
    return absent


def _lost(ctx: Context, e: Exception) -> dict[str, str]:
    room(ctx.store.root)  # what fails on a full disk says nothing
    return {PassName.STATIC: f"{type(e).__name__}: {e}".strip()[:500]}


# summarize ------------------------------------------------------------------------------------------------------------


def summarize(ctx: Context) -> None:
    """Puts every recorded profile of the incumbent in short, and says what changed since what it replaced."""
    if due(ctx) is None:
        return
    which = incumbent.name(ctx)
    listed = [k for k in profiles.of(ctx.store, ctx.run.id, which) if k.taken]
    former = _former(ctx, which)
    by_case = {k.case: _in_short(ctx, k, former.get(k.case)) for k in listed}
    shorts = [s for s in by_case.values() if isinstance(s, Short)]
    written, author = llm_roles.summaries(ctx, shorts, _named(which))
    for stored in filter(_waits, listed):
        done = _finished(stored, by_case[stored.case], written.get(stored.case), author)
        profiles.update(ctx.store, ctx.run.id, done)
        _tell(ctx, done)


def _waits(stored: StoredProfile) -> bool:
    return bool(stored.taken) and stored.summary is None


def _finished(
    stored: StoredProfile, result: Short | dict[str, str], written: Summary | None, author: str
) -> StoredProfile:
    """With its summary, a model's where there is one; or with why it is lost."""
    if not isinstance(result, Short):
        return replace(stored, passes=result)
    return replace(stored, summary=written or result.summary, author=author if written else None)


def _in_short(ctx: Context, stored: StoredProfile, former: CaseProfile | None) -> Short | dict[str, str]:
    """What the rules make of a profile; or, by its passes, why it is lost."""
    profile = profiles.whole(ctx.store.contents, stored)
    if profile is None:
        return {PassName.STATIC: profiles.NOT_KEPT}
    try:
        return Short(profile, former, in_short(profile, former))
    except Exception as e:
        return _lost(ctx, e)


def _former(ctx: Context, which: str) -> dict[str, CaseProfile]:
    """What was profiled of the incumbent before, by case, as far as it is kept."""
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
        bottleneck=summary.bottlenecks[0].as_json() if summary and summary.bottlenecks else None,
        passes=dict(stored.passes),
        seconds=stored.seconds,
        author=stored.author or EMBEDDED,
    )


def _named(which: str) -> str:
    return "the kernel as shipped" if which == incumbent.SHIPPED else f"the incumbent {which[:8]}"
