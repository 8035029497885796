"""The loop's nodes `profile` and `summarize`: the incumbent, once for each public case, at its best configuration.

What passes answer is kept in the content store, and what they say in short in the record, so both steps can be
repeated. A profile that cannot be taken never ends a run: the record says why, and moves then fire without it. Other
parents of a generation are not profiled. Relies on `case_profile.py` for the passes, on `agent/profile/summarize.py`,
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
from pgo_agent.agent.profile.pass_runner import AT_ONCE, Gpu
from pgo_agent.agent.profile.summarize import summarize as in_short
from pgo_agent.agent.profile.summary import Summary
from pgo_agent.agent.run import incumbent, profile_visibility, steering
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.profile_targets import _case, again, wanted
from pgo_agent.agent.run.profile_visibility import Insight
from pgo_agent.agent.run.record import profiles
from pgo_agent.agent.run.record.profiles import Kept
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
    if ctx.settings.get("given") or profile_visibility.of(ctx) is Insight.NONE:
        return None
    kept = {k.case: k for k in profiles.of(ctx.store, ctx.run.id, incumbent.name(ctx))}
    if any(case not in kept for case in ctx.baseline().cases):
        return "profile"
    return "summarize" if any(map(_waits, kept.values())) else None


# profile --------------------------------------------------------------------------------------------------------------


def profile(ctx: Context) -> None:
    """Takes the passes of every case of the incumbent that has none in the record, side by side.

    Raises EnvironmentFault for what a person must mend: a full disk, a process that is killed again and again.
    """
    if due(ctx) != "profile" or ctx.out_of_time():
        return
    which = incumbent.name(ctx)
    known = {k.case for k in profiles.of(ctx.store, ctx.run.id, which)}
    waiting = [w for w in wanted(ctx, which) if w.case not in known]
    cases = "1 case" if len(waiting) == 1 else f"{len(waiting)} cases"
    ctx.emit("phase", phase="profile", doing=f"profiling {cases} of {_named(which)}")
    gpu = Gpu(ctx.gpu, min(SHARE * 60 * ctx.settings["minutes"], ctx.gpu_left()))
    at_once = _at_once(ctx)
    for kept in _side_by_side(ctx, {w.case: partial(taken, ctx, which, w, gpu, at_once) for w in waiting}, at_once):
        profiles.add(ctx.store, ctx.run.id, kept)
        if not kept.taken:
            _tell(ctx, kept)


def _at_once(ctx: Context) -> int:
    """Cases whose passes are taken side by side: where one holds a GPU, others are compiled for, or decoded. A model is
    asked of one case after another."""
    if ctx.gpu is None:
        return ctx.builder.cores
    return 1 if ctx.model_of(PROFILER) else max(1, min(AT_ONCE, ctx.builder.cores // 2))


def _side_by_side(ctx: Context, work: Mapping[str, Callable[[], Kept]], at_once: int) -> Iterable[Kept]:
    if isinstance(ctx.gpu, SpoolJudge) or (ctx.gpu and at_once > 1):
        return _in_order(list(work), ctx.gpu.together(work, each=at_once))
    return memo.parallel(work.values(), at_once)


def _in_order(names: Sequence[str], found: Iterable[tuple[str, Kept]]) -> Iterator[Kept]:
    """What is there of each, as soon as those before it are: prompts tell of cases in the order of the record. Passes
    are kept before that, so a run that is killed loses nothing."""
    left, there = list(names), dict[str, Kept]()
    for name, kept in found:
        there[name] = kept
        while left and left[0] in there:
            yield there[left.pop(0)]


def taken(ctx: Context, which: str, w: Wanted, gpu: Gpu, at_once: int) -> Kept:
    """One case's passes, or why there are none. Raises as `profile`."""
    started = time.monotonic()
    try:
        found = _passes(_case(ctx, w, gpu, at_once, partial(llm_roles.choose, ctx), last=not steering.room(ctx)))
    except (EnvironmentFault, Suspended, Unanswered):
        raise
    except Exception as e:  # whatever a pass stumbles over: the run goes on without its answer
        found = _lost(ctx, e)
    return Kept(which, w.case, found, round(time.monotonic() - started, 3), None)


def _passes(found: CaseProfile) -> dict[str, str]:
    """Name of each pass -> why it is not there; empty where it is there of any kernel."""
    absent: dict[str, str] = {}
    for name, answer in ((n, getattr(k, n)) for k in found.kernels for n in PassName):
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
    places, former = _places(ctx, which), _former(ctx, which)
    found = {k.case: _in_short(ctx, k, places[k.case], former.get(k.case)) for k in listed}
    shorts = [s for s in found.values() if isinstance(s, Short)]
    written, author = llm_roles.summaries(ctx, shorts, _named(which))
    for kept in filter(_waits, listed):
        done = _finished(kept, found[kept.case], written.get(kept.case), author)
        profiles.finish(ctx.store, ctx.run.id, done)
        _tell(ctx, done)


def _waits(kept: Kept) -> bool:
    return bool(kept.taken) and kept.summary is None


def _finished(kept: Kept, found: Short | dict[str, str], written: Summary | None, author: str) -> Kept:
    """With its summary, a model's where there is one; or with why it is lost."""
    if not isinstance(found, Short):
        return replace(kept, passes=found)
    return replace(kept, summary=written or found.summary, author=author if written else None)


def _in_short(ctx: Context, kept: Kept, own: Wanted, former: tuple[Wanted, Kept] | None) -> Short | dict[str, str]:
    """What the rules make of a profile; or, by its passes, why it is lost."""
    try:
        before = again(ctx, *former) if former is not None else None
        profile = again(ctx, own, kept)
        return Short(profile, before, in_short(profile, before))
    except EnvironmentFault:
        raise
    except Exception as e:
        return _lost(ctx, e)


def _former(ctx: Context, which: str) -> dict[str, tuple[Wanted, Kept]]:
    """What was profiled of the incumbent before, by case."""
    before = None if which == incumbent.SHIPPED else ctx.store.candidate(ctx.run.id, which).against
    if before is None:
        return {}
    known = {k.case: k for k in profiles.of(ctx.store, ctx.run.id, before) if k.summary is not None}
    return {case: (w, known[case]) for case, w in _places(ctx, before).items() if case in known}


def _tell(ctx: Context, kept: Kept) -> None:
    said = kept.summary
    ctx.emit(
        "profile.completed",
        candidate=kept.candidate,
        case=kept.case,
        bound=said.bound if said else "",
        bottleneck=said.bottlenecks[0].as_json() if said and said.bottlenecks else None,
        passes=dict(kept.passes),
        seconds=kept.seconds,
        author=kept.author or EMBEDDED,
    )


def _named(which: str) -> str:
    return "the kernel as shipped" if which == incumbent.SHIPPED else f"the incumbent {which[:8]}"


# what is profiled -----------------------------------------------------------------------------------------------------


def _places(ctx: Context, which: str) -> dict[str, Wanted]:
    return {w.case: w for w in wanted(ctx, which)}
