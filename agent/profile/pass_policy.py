"""The embedded profiler: which passes to take of one kernel, within a budget of GPU seconds, and why.

It uses the passes through the Protocol below, and decides by these rules, in this order:

- static is always first: it needs no GPU, and nothing can be ranked without it. - timeline is next, as a static profile
has no times to rank by. It is skipped for a kernel with neither loops nor dots: such a kernel moves its tiles once, and
the roofline says how well. - counters come last, and only if the ranking may be wrong without them: there is no
timeline, or more than UNSEEN of the cycles are in no scope, or the two costliest sections are no more than NEAR apart,
or the costliest one is a wait, an access or goes through shared memory, and no static defect explains it. A section
with a known cause, its own or a static defect, and more than MOST of the cycles ends the search.

If there is a `choose`, it is asked first, as long as the budget allows another pass. These rules decide the rest.

A pass is not taken if it is impossible, exceeds the budget, or is not among the `wanted` ones. The seconds are expected
ones; the caller enforces the deadline of a pass.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from pgo_agent.agent.profile.findings import EXPLAINS, Defect
from pgo_agent.agent.profile.findings.static import of_code
from pgo_agent.agent.profile.findings.timeline import Section, sections
from pgo_agent.sandbox.json_codec import Record
from pgo_agent.sandbox.profile.counters.types import Counters
from pgo_agent.sandbox.profile.kernel_profile import Missing, PassName
from pgo_agent.sandbox.profile.static_profile import Problem, StaticProfile
from pgo_agent.sandbox.profile.timeline.types import Timeline

NEAR = 0.1  # of the cycles: two sections that differ by no more may change places
UNSEEN = 0.3  # of the cycles: more than that in no scope may hide a section
MOST = 0.7  # of the cycles: a section with a known cause and a larger share ends the search
CAUSELESS = frozenset({Defect.COPY_WAIT, Defect.EPILOGUE, Defect.IMBALANCE})  # sections that name no cause themselves
WAITING = CAUSELESS | {Defect.DOT_WAIT}  # of dots there may be too many, or something else in their way
EMBEDDED = "embedded"
UNWANTED = "it was not asked for"
Rule = Callable[[], tuple[bool, str]]  # whether a pass is needed, and why, or why not
T = TypeVar("T")


class Passes(Protocol):
    """The passes of one kernel."""

    def cost(self, name: PassName) -> float:
        """Return the expected GPU seconds; 0 if its answer is stored, or it needs no GPU."""

    def why_not(self, name: PassName) -> str:
        """Return why it cannot be taken here; empty if it can."""

    def static(self) -> StaticProfile | Problem:
        """Take the static pass."""

    def timeline(self) -> Timeline | Missing:
        """Take the timeline."""

    def counters(self) -> Counters | Missing:
        """Take the counters."""


@dataclass(frozen=True)
class Decision(Record):
    """A decision about one pass."""

    name: PassName
    taken: bool
    why: str  # one sentence
    seconds: float  # expected GPU seconds; 0 if it was not taken
    by: str = EMBEDDED  # who decided


@dataclass(frozen=True)
class Choice:
    """Which of the offered passes to take next; none: no more passes of this kernel."""

    passes: tuple[PassName, ...]
    why: str  # one sentence
    by: str


@dataclass(frozen=True)
class Situation:
    """The basis of a choice: the results so far, and the passes on offer."""

    static: StaticProfile | Problem
    answers: Mapping[PassName, "Timeline | Counters | Missing"]  # of passes that were decided already
    offered: Mapping[PassName, float]  # passes that can be taken -> expected GPU seconds
    left: float  # GPU seconds


Choose = Callable[[Situation], Choice | None]  # None: by the rules


@dataclass(frozen=True)
class Taken(Record):
    """The answers of the passes, and every decision in order."""

    static: StaticProfile | Problem
    timeline: Timeline | Missing
    counters: Counters | Missing
    decisions: tuple[Decision, ...]


def take(
    passes: Passes,
    seconds: float,
    wanted: frozenset[PassName] | None = None,
    choose: Choose | None = None,
    unwanted: str = UNWANTED,
) -> Taken:
    """Take the passes of one kernel. `seconds`: GPU seconds for all of them. `wanted`: exactly these beside the static
    one, within the budget; None leaves it to `choose` and the rules. `unwanted`: the reason to skip the others.
    Raises what the passes raise.
    """
    role = _Role(passes, seconds, wanted, unwanted)
    static = passes.static()
    role.decisions.append(Decision(PassName.STATIC, True, "it needs no GPU, and says where to look", 0.0))
    if choose is not None and wanted is None:
        role.choose(static, choose)
    timeline = role.ask(PassName.TIMELINE, lambda: _timeline_needed(static), passes.timeline)
    counters = role.ask(PassName.COUNTERS, lambda: _counters_needed(static, timeline), passes.counters)
    return Taken(static, timeline, counters, tuple(role.decisions))


class _Role:
    """The decisions and answers so far, and the GPU seconds that are left."""

    def __init__(self, passes: Passes, seconds: float, wanted: frozenset[PassName] | None, unwanted: str) -> None:
        self.passes, self.left, self.wanted, self.unwanted = passes, seconds, wanted, unwanted
        self.decisions: list[Decision] = []
        self.answers: dict[PassName, Any] = {}

    def choose(self, static: StaticProfile | Problem, choose: Choose) -> None:
        """Take and skip passes as chosen, until nothing is left to decide."""
        take = {PassName.TIMELINE: self.passes.timeline, PassName.COUNTERS: self.passes.counters}
        while offered := self._offered(tuple(take)):
            choice = choose(Situation(static, dict(self.answers), offered, self.left))
            if choice is None:
                return
            for name in (chosen := [n for n in choice.passes if n in offered]):
                if self.passes.cost(name) <= self.left:
                    self._take(name, choice.why, choice.by, take[name])
            for name in () if chosen else offered:
                self._leave(name, choice.why, choice.by)

    def ask(
        self, name: PassName, rule: Callable[[], tuple[bool, str]], pass_: Callable[[], T | Missing]
    ) -> T | Missing:
        """Return the answer of a pass, or why it was not taken: as chosen, else by the rule."""
        if name not in self.answers:
            needed, why = rule()
            if refusal := self._refusal(name, needed, why, self.passes.cost(name)):
                self._leave(name, refusal, EMBEDDED)
            else:
                self._take(name, "it was asked for" if self.wanted else why, EMBEDDED, pass_)
        answer: T | Missing = self.answers[name]
        return answer

    def _offered(self, names: Sequence[PassName]) -> dict[PassName, float]:
        costs = {n: self.passes.cost(n) for n in names if n not in self.answers and not self.passes.why_not(n)}
        return {n: cost for n, cost in costs.items() if cost <= self.left}

    def _take(self, name: PassName, why: str, by: str, pass_: Callable[[], object]) -> None:
        cost = self.passes.cost(name)
        self.left -= cost
        self.decisions.append(Decision(name, True, why, cost, by))
        self.answers[name] = pass_()

    def _leave(self, name: PassName, why: str, by: str) -> None:
        self.decisions.append(Decision(name, False, why, 0.0, by))
        self.answers[name] = Missing(name, why)

    def _refusal(self, name: PassName, needed: bool, why: str, cost: float) -> str:
        if self.wanted is not None and name not in self.wanted:
            return self.unwanted
        if cannot := self.passes.why_not(name):
            return cannot
        if self.wanted is None and not needed:
            return why
        return f"it takes about {cost:.1f} s of the GPU, and {self.left:.1f} s are left" if cost > self.left else ""


def _timeline_needed(static: StaticProfile | Problem) -> tuple[bool, str]:
    if _moves_once(static):
        return False, "without loops and dots there is nothing to rank but the roof"
    return True, "nothing static has a time to rank by"


def _counters_needed(static: StaticProfile | Problem, timeline: Timeline | Missing) -> tuple[bool, str]:
    if _moves_once(static):
        return False, "without loops and dots there is nothing to rank but the roof"
    if isinstance(timeline, Missing):
        return True, f"there is no timeline ({timeline.why})"
    static_defects = frozenset(f.defect for f in of_code(static)) if isinstance(static, StaticProfile) else frozenset()
    listed = sections(timeline)
    if doubt := unclear(listed, static_defects):
        return True, doubt
    return False, f"{listed[0].defect} with {listed[0].share:.0%} of the cycles stay first whatever counters say"


def _moves_once(static: StaticProfile | Problem) -> bool:
    return isinstance(static, StaticProfile) and not static.pipeline.dots and all(m.waits for m in static.loops)


def unclear(listed: Sequence[Section], static_defects: frozenset[Defect]) -> str:
    """Return why it is not clear that the first section limits the kernel; empty if it is. `static_defects`: those of
    the static profile.
    """
    if not listed:
        return "the timeline has no shares"
    top, second = listed[0], listed[1].share if len(listed) > 1 else 0.0
    explained = any(d in static_defects for d in EXPLAINS.get(top.defect, ()))
    named = explained or not (top.defect in CAUSELESS or top.through_shared)
    if named and top.share > MOST:
        return ""
    if (unseen := 1 - sum(s.share for s in listed)) > UNSEEN:
        return f"{unseen:.0%} of the cycles are in no scope"
    if top.share - second <= NEAR:
        return f"{top.defect} and {listed[1].defect} are near each other, with {top.share:.0%} and {second:.0%}"
    waits = top.defect in WAITING or top.through_shared
    return f"{top.defect} take {top.share:.0%} of the cycles, and nothing says why" if waits and not explained else ""
