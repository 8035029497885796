"""One mbarrier while a program runs: its phase, what reached it, and the order of events.

Clocks hold the order: for each role, how many of its steps surely came before; for each barrier, how many of its phases
were surely complete before. "Surely" means in every schedule, not only in the current one.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from pgo_agent.sandbox.gate.barriers.program import At

Clock = dict[str, int]


@dataclass(frozen=True)
class Mark:
    """One step of one role that was executed."""

    role: str
    position: int  # in the role's list of steps
    at: At

    def before(self, clock: Mapping[str, int]) -> bool:
        return clock.get(self.role, 0) > self.position


@dataclass(frozen=True)
class Contribution:
    """An arrival or bytes that reached a phase. Its clock is that of the step that made or started it."""

    mark: Mark
    clock: Clock
    count: int
    expects: int
    brings: int
    later: bool  # reached the barrier some time after its step


@dataclass
class Barrier:
    """PTX mbarrier object: pending arrivals and bytes of the current phase; both zero completes it."""

    name: str
    key: str  # unique name of this life of the barrier
    count: int
    init: Mark
    pending: int = 0
    bytes: int = 0  # expected and not yet brought; below zero: brought and not yet expected
    phase: int = 0  # phases completed
    flying: list[Mark] = field(default_factory=list)  # copies under way
    phases: dict[int, list[Contribution]] = field(default_factory=lambda: defaultdict(list))
    clocks: list[Clock] = field(default_factory=list)  # of each completed phase: everything that came before
    waits: dict[int, dict[str, Mark]] = field(default_factory=lambda: defaultdict(dict))  # by completed phases seen
    touched: dict[str, Mark] = field(default_factory=dict)  # the last step of each role on it

    def __post_init__(self) -> None:
        self.pending = self.count

    def passes(self, parity: int) -> bool:
        return self.phase & 1 != parity & 1

    def add(self, c: Contribution) -> list[Contribution]:
        """Add it to the current phase; return all contributions of that phase if this completes it."""
        self.phases[self.phase].append(c)
        self.bytes += c.expects - c.brings
        self.pending -= c.count
        if self.pending or self.bytes:
            return []
        done = self.phases[self.phase]
        clock: Clock = {}
        for x in done:
            merge(clock, x.clock)
        self.clocks.append(clock)
        self.phase += 1
        self.pending = self.count
        return done

    def complete_before(self, phase: int, clock: Mapping[str, int]) -> bool:
        """Whether the phase was complete before the clock in every schedule."""
        if clock.get(self.key, 0) > phase:
            return True
        return phase < self.phase and all(not c.later and c.mark.before(clock) for c in self.phases[phase])

    def in_use(self, clock: Mapping[str, int]) -> Mark | None:
        """Return a step on this barrier that may not have ended at the clock, or None."""
        for mark in self.touched.values():
            if not mark.before(clock):
                return mark
        return self.flying[0] if self.flying else self.unawaited(clock)

    def unawaited(self, clock: Mapping[str, int]) -> Mark | None:
        """Return a copy that may still be running at the clock, because no wait was for its phase, or None."""
        for phase, contributions in self.phases.items():
            for c in contributions:
                if c.later and clock.get(self.key, 0) <= phase:
                    return c.mark
        return None


def merge(into: Clock, other: Mapping[str, int]) -> None:
    for k, v in other.items():
        if v > into.get(k, 0):
            into[k] = v
