"""Runs an abstract barrier program and decides whether some schedule of its roles hangs.

One greedy run is enough when no step depends on the schedule, and the machine proves that as it goes. It checks three
conditions on the order that holds in every schedule, for a barrier with k completed phases:
1. What reaches phase n comes after everything that reached phase n - 1.
2. Some arrival of phase k comes after a wait that passed after k phases. Else the next phase may overtake the wait.
3. Before that wait k - 1 phases were complete. Else it may pass on an older phase of the same parity.
Then, by induction, in every schedule every wait sees the same k and every arrival the same phase: all schedules run the
same steps, and all finish. (A phase never completes on a part of its arrivals: whatever expects bytes is an arrival.)
Conversely, a failed condition gives a different schedule, which is a finding. A stuck run is itself a schedule, so a
reported deadlock is possible. (Condition 1 is not asked of a barrier that nobody waits on and that arrivals of one
alone reach: it hangs nobody, whichever phase they fall into.) tests/sandbox/gate/barriers/test_simulator.py tests both
directions against a search over all schedules.

The same order shows which slots of shared memory are used too soon (`shared_memory.py`).

Does not model time, the roles' data, or warps of one role that drift apart.
"""

from collections import deque
from dataclasses import dataclass

from pgo_agent.sandbox.gate.barriers import messages
from pgo_agent.sandbox.gate.barriers.barrier import Barrier, Clock, Contribution, Mark, merge
from pgo_agent.sandbox.gate.barriers.finding import Finding, Kind
from pgo_agent.sandbox.gate.barriers.program import (
    Arrive,
    Copy,
    Fork,
    Free,
    Init,
    Inval,
    Join,
    Program,
    Step,
    Use,
    Wait,
)
from pgo_agent.sandbox.gate.barriers.shared_memory import Memory

NOTHING = Finding(Kind.NONE, "no deadlock and no mismatch in this run; not a proof")


class Broken(Exception):
    """The program breaks a rule of mbarriers; from here on its behaviour is undefined."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.sentence)
        self.finding = finding


@dataclass(frozen=True)
class Blocked:
    """A role that cannot go on, and the step that it waits at."""

    role: str
    position: int
    step: Wait | Join


def run(program: Program) -> Finding:
    """Return a deadlock if the run gets stuck, else the first mismatch or failed condition, else NOTHING.

    Early use of data is checked last: its order is only meaningful where all schedules run the same steps.
    """
    machine = Machine(program)
    try:
        machine.go()
    except Broken as e:
        return next(iter(machine.doubts), e.finding)
    if blocked := machine.blocked():
        return messages.stuck(program, machine, blocked)
    if machine.doubts:
        return machine.doubts[0]
    return machine.left_over() or machine.memory.finding(program) or NOTHING


class Machine:
    """The state of a run. Roles go as far as they can in turn; copies land only when no role can move."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.positions = {program.entry: 0}  # of the roles that were started
        self.clocks: dict[str, Clock] = {program.entry: {}}
        self.barriers: dict[str, Barrier] = {}  # live or invalidated, by name
        self.dead: dict[str, Mark] = {}  # where a barrier was invalidated
        self.lives = 0
        self.flying: deque[tuple[Barrier, Contribution]] = deque()
        # (role, barrier) -> its waits, each with the number of complete phases
        self.history: dict[tuple[str, str], list[tuple[Wait, int]]] = {}
        self.doubts: list[Finding] = []
        self.memory = Memory(program.tracked)
        self.unwatched = _unwatched(program)

    def go(self) -> None:
        while True:
            while sum(self.advance(role) for role in list(self.positions)):
                pass
            if not self.flying:
                return
            barrier, contribution = self.flying.popleft()
            barrier.flying.remove(contribution.mark)
            self.reach(barrier, contribution)

    def blocked(self) -> list[Blocked]:
        blocked = []
        for role, position in self.positions.items():
            steps = self.program.roles[role]
            if position < len(steps):
                step = steps[position]
                assert isinstance(step, Wait | Join)
                blocked.append(Blocked(role, position, step))
        return blocked

    def advance(self, role: str) -> bool:
        """Run the role until it blocks or ends; return whether it moved."""
        steps, start = self.program.roles[role], self.positions[role]
        while self.positions[role] < len(steps):
            mark = Mark(role, self.positions[role], steps[self.positions[role]].at)
            if not self.execute(steps[mark.position], mark):
                break
            self.positions[role] += 1
        return self.positions[role] > start

    def execute(self, step: Step, mark: Mark) -> bool:
        """Execute one step; return False when it must wait. Raises Broken."""
        clock = self.clocks[mark.role]
        if isinstance(step, Fork):
            clock[mark.role] = mark.position + 1
            for child in step.roles:
                self.positions[child] = 0
                self.clocks[child] = dict(clock)
            return True
        if isinstance(step, Join):
            if any(self.positions[c] < len(self.program.roles[c]) for c in step.roles):
                return False
            for child in step.roles:
                merge(clock, self.clocks[child])
        elif isinstance(step, Init):
            self.init(step, mark, clock)
        elif isinstance(step, Use):
            if isinstance(step, Free):
                self.check_free(step, mark)
            self.memory.use(step, mark, clock)
        else:
            barrier = self.live(step.barrier, mark, clock)
            if isinstance(step, Wait):
                if not barrier.passes(step.parity):
                    return False
                self.passed(barrier, step, mark, clock)
            elif isinstance(step, Inval):
                self.end(barrier, step, mark, clock)
            else:
                barrier.touched[mark.role] = mark
                self.contribute(barrier, step, mark, clock)
        clock[mark.role] = mark.position + 1
        return True

    def live(self, name: str, mark: Mark, clock: Clock) -> Barrier:
        if name in self.dead or name not in self.barriers:
            raise Broken(messages.not_live(name, mark, self.dead.get(name)))
        barrier = self.barriers[name]
        if not barrier.init.before(clock):
            raise Broken(messages.unordered_init(name, mark, barrier.init))
        return barrier

    def init(self, step: Init, mark: Mark, clock: Clock) -> None:
        if step.barrier in self.barriers and step.barrier not in self.dead:
            self.end(self.live(step.barrier, mark, clock), step, mark, clock)
        elif (ended := self.dead.get(step.barrier)) and not ended.before(clock):
            raise Broken(messages.in_use(step, mark, ended))
        self.dead.pop(step.barrier, None)
        self.lives += 1
        self.barriers[step.barrier] = Barrier(step.barrier, f"{step.barrier}#{self.lives}", step.count, mark)

    def check_free(self, step: Free, mark: Mark) -> None:
        for name in self.barriers:
            if name.partition("[")[0] == step.name and name not in self.dead:
                raise Broken(messages.not_invalidated(name, mark))

    def end(self, barrier: Barrier, step: Init | Inval, mark: Mark, clock: Clock) -> None:
        if (other := barrier.in_use(clock)) is not None:
            raise Broken(messages.in_use(step, mark, other))
        self.dead[step.barrier] = mark

    def contribute(self, barrier: Barrier, step: Arrive | Copy, mark: Mark, clock: Clock) -> None:
        reached = {**clock, mark.role: mark.position + 1}
        if isinstance(step, Copy):
            barrier.flying.append(mark)
            self.memory.copy(step, mark, clock)
            self.flying.append((barrier, Contribution(mark, reached, step.arrivals, 0, step.brings, True)))
        else:
            self.reach(barrier, Contribution(mark, reached, step.count, step.expects, 0, False))

    def reach(self, barrier: Barrier, c: Contribution) -> None:
        phase = barrier.phase
        if phase and barrier.name not in self.unwatched and not barrier.complete_before(phase - 1, c.clock):
            self.doubts.append(messages.wrong_phase(barrier, phase, c, self.history))
        if c.count > barrier.pending:
            raise Broken(messages.too_many(barrier, c, self.history))
        if c.later:
            self.memory.reached(c.mark, barrier.key, phase)
        done = barrier.add(c)
        for mark in barrier.waits[phase].values() if done else ():
            if not any(mark.before(x.clock) for x in done):
                self.doubts.append(messages.overtaken(barrier, phase, mark, done))

    def passed(self, barrier: Barrier, step: Wait, mark: Mark, clock: Clock) -> None:
        seen = barrier.phase
        if seen >= 2 and not barrier.complete_before(seen - 2, clock):
            self.doubts.append(messages.early(barrier, seen, mark))
        if seen:
            merge(clock, barrier.clocks[seen - 1])
            clock[barrier.key] = max(clock.get(barrier.key, 0), seen)
        barrier.touched[mark.role] = barrier.waits[seen][mark.role] = mark
        self.history.setdefault((mark.role, step.barrier), []).append((step, seen))

    def left_over(self) -> Finding | None:
        """Return a finding for bytes that never came, or copies that no wait was for, at the end; or None."""
        clock = self.clocks[self.program.entry]
        for name, barrier in self.barriers.items():
            if name in self.dead:
                continue
            if barrier.bytes:
                return messages.bytes_left(barrier)
            if (mark := barrier.unawaited(clock)) is not None:
                return messages.unawaited(name, mark)
        return None


def _unwatched(program: Program) -> frozenset[str]:
    """The barriers that no role waits on, and that arrivals of one alone reach: no phase has too many of these."""
    steps = [s for role in program.roles.values() for s in role]
    reached = {s.barrier for s in steps if isinstance(s, Arrive)}
    needed = {s.barrier for s in steps if isinstance(s, Wait | Copy)}
    needed |= {s.barrier for s in steps if isinstance(s, Arrive) and (s.count != 1 or s.expects)}
    return frozenset(reached - needed)
