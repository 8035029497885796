"""Takes the passes of a kernel, as `agent/profile/pass_policy.py` asks for them: stored answers at once, others by the
judge.

The first pass that needs the judge starts its process. Without a GPU only stored answers are available.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TypeVar

from pgo_agent.sandbox.judge.interface import Judge
from pgo_agent.sandbox.profile import gpu_passes, static
from pgo_agent.sandbox.profile.backend import Subject
from pgo_agent.sandbox.profile.counters import collect as counting
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
FIRST = {PassName.TIMELINE: 15.0, PassName.COUNTERS: 40.0}  # expected GPU seconds until one was taken: guesses
T = TypeVar("T")


@dataclass
class GpuBudget:
    """The GPU seconds that passes may take; threads may share it."""

    judge: Judge | None
    left: float  # GPU seconds
    why: str = NO_GPU  # there is no judge
    expected: dict[PassName, float] = field(default_factory=lambda: dict(FIRST))
    _booked: float = 0.0  # expected GPU seconds of passes that were begun
    _one: threading.Condition = field(default_factory=threading.Condition)

    def held(self) -> Judge:
        """Return the judge. Raises NotTaken if there is none."""
        if self.judge is None:
            raise NotTaken(self.why)
        return self.judge

    def short_of(self, name: PassName) -> str:
        """Return why a pass must not begin: too few seconds are left; empty if there are enough."""
        needed, left = self.expected[name], self.left
        return f"it takes about {needed:.1f} s of the GPU, and {left:.1f} s are left" if needed > left else ""

    def timed(self, name: PassName, take: Callable[[], T]) -> T:
        """Take a pass and book the seconds that it held the GPU; the next one of its name is expected to take as long.

        Waits for passes of other threads if their expected seconds leave too few. Raises NotTaken if too few are left
        in the end, or if there is no GPU.
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
        """GPU seconds of this thread: waiting for a GPU and work of the CPU do not count.

        One thread alone asks a judge elsewhere, which reads old answers again each time: only new ones count.
        """
        if self.judge is None:
            return 0.0
        return self.judge.busy if self.judge.elsewhere else self.judge.seconds


@dataclass
class KernelPasses:
    """One kernel of a case; it implements `Passes`."""

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
        absent = _no_counters(self.gpu.judge) if name is PassName.COUNTERS else ""
        return absent or self.gpu.short_of(name)

    def static(self) -> StaticProfile | Problem:
        return static.static(self.context, self.subject, self.backend)

    def timeline(self) -> Timeline | Missing:
        if PassName.TIMELINE not in self._kept:
            instrumented_build.build(self.context.builder, self.place)  # while nobody waits for the GPU
        return self._taken(PassName.TIMELINE, partial(gpu_passes.timeline, self.context, *self._what))

    def announce(self) -> None:
        """Have counters read soon: a judge elsewhere can begin before the passes that are taken first."""
        judge = self.gpu.judge
        if judge is not None and not self.why_not(PassName.COUNTERS) and PassName.COUNTERS not in self._kept:
            judge.queue(counting.question(self.context.contents, self.place))

    def counters(self) -> Counters | Missing:
        return self._taken(PassName.COUNTERS, partial(gpu_passes.counters, self.context, *self._what, self.subject))

    @cached_property
    def _kept(self) -> frozenset[PassName]:
        """The passes whose answers were stored before. Cached, as the check reads all that they refer to."""
        stored = {
            PassName.TIMELINE: gpu_passes.timeline.known(self.context, *self._what),
            PassName.COUNTERS: gpu_passes.counters.known(self.context, *self._what, self.subject),
        }
        return frozenset(name for name, there in stored.items() if there)

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


def _no_counters(judge: Judge) -> str:
    """Why nothing can be counted; empty where it can be, or a judge elsewhere will say."""
    if judge.elsewhere or not judge.here:
        return "" if judge.elsewhere else gpu_passes.ELSEWHERE
    try:
        ncu.find()
    except ncu.Absent as e:
        return str(e)
    return ""
