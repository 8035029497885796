"""Takes the passes of a kernel, as `agent/profile/pass_policy.py` asks for them: what is kept at once, the rest on this
machine.

The judge's process is started by the first pass that needs it. Where no GPU is, kept answers are still there.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TypeVar

from pgo_agent.sandbox.judge.interface import Judge
from pgo_agent.sandbox.profile import gpu_passes, static
from pgo_agent.sandbox.profile.backend import Subject
from pgo_agent.sandbox.profile.counters import ncu
from pgo_agent.sandbox.profile.counters.types import Counters
from pgo_agent.sandbox.profile.gpu_passes import GpuPassContext, NotTaken
from pgo_agent.sandbox.profile.kernel_profile import Missing, PassName
from pgo_agent.sandbox.profile.static_profile import Problem, StaticProfile
from pgo_agent.sandbox.profile.timeline import instrumented_build
from pgo_agent.sandbox.profile.timeline.instrumented_build import KernelRef
from pgo_agent.sandbox.profile.timeline.types import Timeline

NO_GPU = "no GPU is visible here"
AT_ONCE = (
    4  # cases for each GPU: on an H200 a case of attention holds it for a quarter of the time that its passes take
)
FIRST = {PassName.TIMELINE: 15.0, PassName.COUNTERS: 40.0}  # GPU seconds that are expected until one was taken: guesses
T = TypeVar("T")


@dataclass
class GpuBudget:
    """The GPU, as far as it may be spent; threads may share it."""

    judge: Judge | None
    left: float  # GPU seconds
    why: str = NO_GPU  # it cannot be used, where there is no judge
    expected: dict[PassName, float] = field(default_factory=lambda: dict(FIRST))
    _booked: float = 0.0  # GPU seconds that passes which were begun are expected to take
    _one: threading.Condition = field(default_factory=threading.Condition)

    def held(self) -> Judge:
        """The judge. Raises NotTaken where there is none."""
        if self.judge is None:
            raise NotTaken(self.why)
        return self.judge

    def short_of(self, name: PassName) -> str:
        """Why a pass is not to be begun: other threads' passes took the time; empty where there is enough."""
        needed, left = self.expected[name], self.left
        return f"it takes about {needed:.1f} s of the GPU, and {left:.1f} s are left" if needed > left else ""

    def timed(self, name: PassName, take: Callable[[], T]) -> T:
        """Takes a pass and books how long it held the GPU; the next one of its name is expected to take as long.

        Waits for passes of other threads where what they are expected to take does not leave enough. Raises NotTaken
        where what they took does not, or no GPU is.
        """
        self.held()
        booked = self._book(name)
        began = self._clock()
        try:
            return take()
        finally:
            took = self._clock() - began
            with self._one:
                self._booked -= booked
                self.left, self.expected[name] = self.left - took, took or self.expected[name]
                self._one.notify_all()

    def _book(self, name: PassName) -> float:
        with self._one:
            while (why := self.short_of(name)) or self._booked + self.expected[name] > self.left:
                if why:
                    raise NotTaken(why)
                with self.held().idle():
                    self._one.wait()
            self._booked += self.expected[name]
            return self.expected[name]

    def _clock(self) -> float:
        """Of this thread: what it waits for a GPU does not count, nor what this machine's processors do for a pass.

        A judge elsewhere is asked by one thread, and reads old answers again with each: new ones count.
        """
        if self.judge is None:
            return 0.0
        return self.judge.busy if self.judge.elsewhere else self.judge.seconds


@dataclass
class KernelPasses:
    """One kernel of a case: the `Passes` that the profiler's role asks."""

    context: GpuPassContext
    gpu: GpuBudget
    subject: Subject
    place: KernelRef
    backend: str  # name

    def cost(self, name: PassName) -> float:
        return 0.0 if name is PassName.STATIC or name in self._kept else self.gpu.expected[name]

    def why_not(self, name: PassName) -> str:
        if name is PassName.STATIC or name in self._kept:
            return ""
        if self.backend != "nvidia":
            return "records and counters are NVIDIA's"
        if self.gpu.judge is None:
            return self.gpu.why
        absent = name is PassName.COUNTERS and (gpu_passes.ELSEWHERE if self.gpu.judge.elsewhere else _no_tool())
        return absent or self.gpu.short_of(name)

    def static(self) -> StaticProfile | Problem:
        return static.static(self.context, self.subject, self.backend)

    def timeline(self) -> Timeline | Missing:
        if PassName.TIMELINE not in self._kept:
            instrumented_build.build(self.context.builder, self.place)  # while nobody waits for the GPU
        return self._taken(PassName.TIMELINE, partial(gpu_passes.timeline, self.context, *self._what))

    def counters(self) -> Counters | Missing:
        return self._taken(PassName.COUNTERS, partial(gpu_passes.counters, self.context, *self._what, self.subject))

    @cached_property
    def _kept(self) -> frozenset[PassName]:
        """The passes whose answers were there before: to see that reads all that they name."""
        known = {
            PassName.TIMELINE: gpu_passes.timeline.known(self.context, *self._what),
            PassName.COUNTERS: gpu_passes.counters.known(self.context, *self._what, self.subject),
        }
        return frozenset(name for name, there in known.items() if there)

    @property
    def _what(self) -> tuple[KernelRef, str]:
        return self.place, self.context.builder.target.contract

    def _taken(self, name: PassName, take: Callable[[], T]) -> T | Missing:
        if name in self._kept:
            return take()
        try:
            return self.gpu.timed(name, take)
        except NotTaken as e:
            return Missing(name, str(e))


def _no_tool() -> str:
    try:
        ncu.find()
    except ncu.Absent as e:
        return str(e)
    return ""
