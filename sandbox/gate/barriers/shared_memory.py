"""Slots of shared memory while a program runs: finds uses of a slot that may overlap.

Two uses of a slot, one of them a write, are in order if one has ended before the other begins, in every schedule (by
the clocks of `simulator.py`). A use ends with its step; for wgmma, cp.async and TMA stores, when its role has awaited
its group; for a copy on a barrier, with that barrier's phase, not with the step that started it. Otherwise some
schedule has both at once, because what must come before both beginnings needs neither end. Uses that ended before a
write are forgotten: what comes after the write comes after them too. So a use is compared only with the last write and
the reads after it.

wgmma and TMA see what threads store only after a fence (PTX, proxies), which must come between in every schedule.
A slot that is read before anything was written to it holds what an earlier kernel left there: found where all writes to
its allocation are known.

Assumes that slots of different names are different memory, and that a copy writes its whole slot, masked or not.
"""

from collections import defaultdict, deque
from dataclasses import dataclass, field

from pgo_agent.sandbox.gate.barriers import messages
from pgo_agent.sandbox.gate.barriers.barrier import Clock, Mark
from pgo_agent.sandbox.gate.barriers.finding import Finding
from pgo_agent.sandbox.gate.barriers.program import Access, Commit, Copy, Drain, Fence, Free, Program, Queue, Use

FREED = "dealloc"  # name of an allocation's end among the uses of its slots


@dataclass
class InUse:
    """One use of one slot."""

    mark: Mark
    slot: str
    writes: bool
    what: str
    queue: Queue | None  # of its role, where it has one
    barrier: str = ""  # that a copy reports to
    end: Mark | None = None  # the step of its own role that ends it
    phases: list[tuple[str, int]] = field(default_factory=list)  # any of these complete: it has ended

    def ended(self, clock: Clock) -> bool:
        if self.end is not None and self.end.before(clock):
            return True
        return any(clock.get(key, 0) > phase for key, phase in self.phases)


@dataclass(frozen=True)
class Hazard:
    first: InUse
    second: InUse
    known: int  # how many steps of the first's role come before the second


@dataclass
class Slot:
    """The uses of a slot that may still run when a later step begins."""

    written: InUse | None = None
    reads: dict[tuple[str, Queue | None], InUse] = field(default_factory=dict)  # the last; older ones end before it


@dataclass
class Group:
    uses: list[InUse] = field(default_factory=list)


class Memory:
    """All slots, and all queues of the roles."""

    def __init__(self, tracked: frozenset[str] = frozenset()) -> None:
        self.tracked = tracked  # allocations that nothing but the steps writes to
        self.unfilled: InUse | None = None  # the first read of a slot that nothing was written to
        self.unfenced: dict[str, InUse] = {}  # by slot: the store of threads that no fence has followed
        self.unseen: Hazard | None = None  # the first store that a dot or a TMA store may not see
        self.slots: dict[str, Slot] = defaultdict(Slot)
        self.queues: dict[tuple[str, Queue], deque[Group]] = defaultdict(lambda: deque([Group()]))  # the last is open
        self.flying: dict[Mark, list[InUse]] = {}  # by the step that will reach a barrier when they have ended
        self.hazard: Hazard | None = None  # the first

    def use(self, step: Use, mark: Mark, clock: Clock) -> None:
        if isinstance(step, Access):
            for slot in step.slots:
                end = None if step.queue else mark
                use = InUse(mark, slot, step.writes, step.what, step.queue, end=end)
                self.begin(use, clock)
                if step.by_threads:
                    self.unfenced[slot] = use
        elif isinstance(step, Commit):
            self.queues[mark.role, step.queue].append(Group())
        elif isinstance(step, Drain):
            self.drain(step.queue, step.pending + 1, mark)
        elif isinstance(step, Fence):
            self.unfenced = {slot: u for slot, u in self.unfenced.items() if not u.ended(clock)}
        elif isinstance(step, Free):
            for slot in [s for s in self.slots if s.partition("[")[0] == step.name]:
                self.begin(InUse(mark, slot, True, FREED, None, end=mark), clock)
                del self.slots[slot]
                self.unfenced.pop(slot, None)
        else:
            self.unfenced.clear()
            for queue in Queue:
                self.drain(queue, 0, mark)

    def copy(self, step: Copy, mark: Mark, clock: Clock) -> None:
        """Begin a TMA copy, or arrivals after all earlier cp.async copies."""
        if step.arrivals:
            self.flying[mark] = [use for group in self.queues[mark.role, Queue.COPIES] for use in group.uses]
        elif step.slot:
            use = InUse(mark, step.slot, True, "copy", None, step.barrier)
            self.flying[mark] = [use]
            self.begin(use, clock)

    def reached(self, mark: Mark, key: str, phase: int) -> None:
        for use in self.flying.pop(mark, ()):
            use.phases.append((key, phase))

    def begin(self, use: InUse, clock: Clock) -> None:
        if use.queue:
            self.queues[use.mark.role, use.queue][-1].uses.append(use)
        slot = self.slots[use.slot]
        others = [slot.written] if slot.written else []
        others += slot.reads.values() if use.writes else ()
        for other in others:
            if self.hazard is None and not other.ended(clock):
                self.hazard = Hazard(other, use, clock.get(other.mark.role, 0))
        if use.writes:
            self.slots[use.slot] = Slot(use)
            self.unfenced.pop(use.slot, None)
        else:
            if slot.written is None and self.unfilled is None and use.slot.partition("[")[0] in self.tracked:
                self.unfilled = use
            if use.queue and use.slot in self.unfenced and self.unseen is None:
                self.unseen = Hazard(self.unfenced[use.slot], use, 0)
            slot.reads[use.mark.role, use.queue] = use

    def drain(self, queue: Queue, keep: int, mark: Mark) -> None:
        """End all but the last `keep` groups, of which the open one is the last."""
        groups = self.queues[mark.role, queue]
        while len(groups) > keep:
            for use in groups.popleft().uses:
                use.end = mark
        if not groups:
            groups.append(Group())

    def finding(self, program: Program) -> Finding | None:
        if self.hazard:
            return messages.too_soon(program, self.hazard)
        if self.unfilled:
            return messages.not_filled(self.unfilled)
        if self.unseen:
            return messages.not_fenced(self.unseen)
        return self.left_over()

    def left_over(self) -> Finding | None:
        """Return a finding for a TMA store that may still read memory after the program's end, or None."""
        left = (
            use for (_, queue), groups in self.queues.items() if queue is Queue.STORES for g in groups for use in g.uses
        )
        use = next(left, None)
        return messages.not_awaited(use.mark) if use else None
