"""The context of passes that need a GPU, and these passes: timeline, counters, and what the GPU reaches at best.

What is measured depends on the machine, too: an answer is kept for a model of GPU and a Triton, and says itself which
driver and torch it was taken with. Asked again it comes back without a judge process; `Pass.again` measures anew.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from pgo_agent.sandbox.judge.gpu_judge import GpuJudge
from pgo_agent.sandbox.judge.interface import Ended, Judge
from pgo_agent.sandbox.judge.pool import GpuPool
from pgo_agent.sandbox.judge.questions import PeakRates
from pgo_agent.sandbox.profile import memo, roofline, static
from pgo_agent.sandbox.profile.backend import Subject, Workbench
from pgo_agent.sandbox.profile.counters import collect as counting
from pgo_agent.sandbox.profile.counters.types import Counters
from pgo_agent.sandbox.profile.kernel_profile import Missing
from pgo_agent.sandbox.profile.static_profile import StaticProfile
from pgo_agent.sandbox.profile.timeline.instrumented_build import KernelRef
from pgo_agent.sandbox.profile.timeline.types import Timeline

T = TypeVar("T")
ELSEWHERE = "the GPU is of a cluster, and nobody runs Nsight Compute there"


class NotTaken(Exception):
    """A pass that gave nothing; the text says why. It is not kept: the next one may."""


@dataclass(frozen=True)
class GpuPassContext(Workbench):
    """A context with a GPU. `judge` gives the process that holds it, when a pass has to be taken."""

    judge: Callable[[], Judge]


@memo.kept("pgo_agent.sandbox.profile.gpu.timeline", version=2)
def timeline(
    context: GpuPassContext, place: KernelRef, contract: str, per_pass: int = 8, repeats: int = 3, blocks: int = 24
) -> Timeline:
    """Return a kernel's timeline.

    `contract`: the target's text, whose inputs the kernel gets; part of the key. Raises NotTaken where nothing of the
    kernel could be recorded, or a launch hung or crashed; what the boxes raise.
    """
    from pgo_agent.sandbox.profile.timeline.collect import take  # numpy, which a kept answer does not need

    judge = context.judge()
    try:
        result = take(judge, context.builder, place, per_pass, repeats, blocks)
    except Ended as e:
        raise NotTaken(f"an instrumented launch {_how(e)}") from None
    if not result.passes:
        raise NotTaken("; ".join(r.told for r in result.refused) or "there is nothing to record in this kernel")
    on = judge.environment
    machine = {"gpu": str(on.gpu), "driver": str(on.driver or ""), "torch": on.torch}  # what a time depends on
    return replace(result, machine=machine)


def _how(e: Ended) -> str:
    return f"{'did not end' if e.timed_out else 'crashed'}: {e.detail.strip()[-300:]}"


@memo.kept("pgo_agent.sandbox.profile.gpu.counters", version=1)
def counters(context: GpuPassContext, place: KernelRef, contract: str, subject: Subject) -> Counters:
    """Return what Nsight Compute counts in the first launch of a kernel. `subject`: the same kernel, for lines of its
    source.

    Raises NotTaken where it is absent, old or forbidden, or counted nothing; what the compiler's box raises.
    """
    profile = static.static(context, subject, "nvidia")
    lines = profile if isinstance(profile, StaticProfile) else None
    judge = context.judge()
    if judge.elsewhere:
        return _require(counting.asked(judge, context.builder, place, lines))
    if not isinstance(judge, GpuJudge | GpuPool) or not judge.here:
        raise NotTaken(ELSEWHERE)
    return _require(counting.take(judge, context.builder, place, lines))


@memo.kept("pgo_agent.sandbox.profile.gpu.peaks", version=1)
def peaks(context: GpuPassContext, case: str, contract: str) -> PeakRates:
    """Return what the GPU reaches with the types of a case. Raises NotTaken where it does not say."""
    try:
        return _require(roofline.peaks_of(context.judge(), case))
    except Ended as e:
        raise NotTaken(f"the judge {_how(e)}") from None


def _require(answer: T | Missing) -> T:
    """Return an answer. Raises NotTaken where it is missing."""
    if isinstance(answer, Missing):
        raise NotTaken(answer.why)
    return answer
