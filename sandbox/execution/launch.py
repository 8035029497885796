"""The state of one launch, which the steps of a kernel share: where it is, what it may access, how other ops run."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pgo_agent.sandbox.execution.errors import KernelFault, NotModelled
from pgo_agent.sandbox.execution.memory import Memory
from pgo_agent.sandbox.ttgir.tree import Block, Op

Values = dict[str, Any]  # name in the text -> a tensor or a descriptor


@dataclass(frozen=True)
class End:
    """How a list of ops ended: with values for what is around it, or with a branch."""

    values: tuple[Any, ...]
    to: str = ""  # a label
    more: bool = True  # of scf.condition: whether the loop goes on


@dataclass
class Barrier:
    """An mbarrier (PTX: mbarrier): a phase ends when all have arrived and all bytes that are expected have come."""

    count: int
    pending: int
    bytes: int = 0
    phase: int = 0
    loads: list[Callable[[], None]] = field(default_factory=list)  # that complete bytes here, and are not done yet

    def arrive(self, number: int) -> None:
        self.pending -= number
        self._settle()

    def expect(self, number: int) -> None:
        """Arrive once, and expect so many bytes."""
        self.bytes += number
        self.arrive(1)

    def complete(self, number: int) -> None:
        self.bytes -= number
        self._settle()

    def _settle(self) -> None:
        if self.pending == 0 and self.bytes == 0:
            self.phase, self.pending = self.phase ^ 1, self.count


@dataclass(eq=False)
class Waiting:
    """A wait for the end of a barrier's phase, by its parity."""

    barrier: Barrier
    parity: int

    @property
    def over(self) -> bool:
        return self.barrier.phase != self.parity

    def fetch(self) -> bool:
        """Do the loads that it waits for, and no more; return whether it is over."""
        while not self.over and self.barrier.loads:
            self.barrier.loads.pop(0)()
        return self.over


@dataclass(eq=False)
class Dot:
    """An asynchronous product, which may fly until it is waited for."""

    compute: Callable[[], Any]
    value: Any = None

    def land(self) -> None:
        self.value = self.compute()


@dataclass(eq=False)
class Flying:
    """What one partition of warps began and has not waited for, in order: all of it is done as late as may be."""

    copies: list[Callable[[], None]] = field(default_factory=list)  # of no group yet
    groups: list[list[Callable[[], None]]] = field(default_factory=list)
    dots: list[Dot] = field(default_factory=list)
    stores: list[Callable[[], None]] = field(default_factory=list)  # by TMA

    def wait_copies(self, left: int) -> None:
        while len(self.groups) > left:
            for copy in self.groups.pop(0):
                copy()

    def wait_dots(self, left: int) -> None:
        while len(self.dots) > left:
            self.dots.pop(0).land()

    def wait_stores(self, left: int) -> None:
        while len(self.stores) > left:
            self.stores.pop(0)()


@dataclass
class Run:
    """One launch, at one of its blocks."""

    memory: Memory
    grid: tuple[int, int, int]
    until: float  # time.monotonic()
    ops: Callable[[Block, Values], End | None]  # runs a block of the text
    call: Callable[[str, Sequence[Any]], tuple[Any, ...]]  # runs a function by its symbol
    place: tuple[int, int, int] = (0, 0, 0)
    barriers: dict[int, Barrier] = field(default_factory=dict)  # by where they lie in shared memory
    scratch: int = 1 << 56  # the next address of scratch, which nothing but descriptors lie in
    descriptors: dict[int, Any] = field(default_factory=dict)  # by where a kernel made them
    early: bool = False  # copies are done where they stand, and what arrives at a barrier lets the others go on
    flying: Flying = field(default_factory=Flying)  # of the partition that runs
    turns: threading.Condition = field(default_factory=threading.Condition)  # held by the partition that runs
    alive: int = 1  # partitions that have not ended
    waits: list[Waiting] = field(default_factory=list)
    passing: int = 0  # partitions that let the others go on
    stopped: bool = False  # by an error in a partition

    def barrier(self, at: Any) -> Barrier:
        """Return the mbarrier in a buffer."""
        found = self.barriers.get(at.data_ptr())
        if found is None:
            raise KernelFault("uses an mbarrier that is not initialized")
        return found

    def changed(self) -> None:
        """Let the partitions that wait look again."""
        if self.waits:
            self.turns.notify_all()

    def pass_turn(self) -> None:
        """Let the other partitions go on as far as they come."""
        if not self.early or self.alive == 1:
            return
        mine = self.flying
        self.passing += 1
        self.turns.notify_all()
        while self.passing + sum(not _ends(w) for w in self.waits) < self.alive and not self.stopped:
            self.tick()
            self.turns.wait(1.0)
        self.passing -= 1
        self.flying = mine

    def wait(self, wanted: Waiting) -> None:
        """Return when a phase has ended. Raises KernelFault where nobody is left who could end it."""
        if wanted.fetch():
            return
        mine = self.flying
        self.waits.append(wanted)
        if self.passing:
            self.turns.notify_all()
        try:
            while not wanted.fetch():
                if self.stopped or (len(self.waits) >= self.alive and not any(map(_ends, self.waits))):
                    self.stopped = True
                    raise KernelFault("waits at an mbarrier whose phase nobody can end any more")
                self.tick()
                self.turns.wait(1.0)
        finally:
            self.waits.remove(wanted)
            self.flying = mine

    def tick(self) -> None:
        """Raise NotModelled when time is up."""
        if time.monotonic() > self.until:
            raise NotModelled("a run that ends in time")


def _ends(waiting: Waiting) -> bool:
    return waiting.over or bool(waiting.barrier.loads)


Step = Callable[[Run, Values], End | None]


def nothing(_op: Op) -> Step:
    """Run an op that changes no value."""
    return lambda _run, _values: None


def symbol(op: Op) -> str:
    """Return the name of a function, where it is defined or called."""
    return next((w for w in op.words if w.startswith("@")), "").strip('@"')
