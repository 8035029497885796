"""Small barrier programs, random or a little broken, and a search over all their schedules to hold the simulator to.

The search knows the semantics of mbarriers and nothing of the simulator: it keeps no clocks and proves nothing.
"""

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st
from pgo_agent.sandbox.gate.barriers.program import (
    Access,
    Arrive,
    Commit,
    Copy,
    Drain,
    Fork,
    Init,
    Inval,
    Join,
    Program,
    Queue,
    Step,
    Use,
    Wait,
)

# all schedules --------------------------------------------------------------------------------------------------------


@dataclass
class Seen:
    """What can happen in some schedule."""

    stuck: bool = False  # somebody waits for good
    broken: bool = False  # a rule of mbarriers is broken
    left_over: bool = False  # bytes expected, or copies under way, at the end
    overlap: bool = False  # two uses of one slot of memory at once, one of them a write
    courses: dict[Any, set[Any]] = field(default_factory=lambda: defaultdict(set))  # step -> phases it met

    @property
    def one_course(self) -> bool:
        return all(len(x) == 1 for x in self.courses.values())

    @property
    def clean(self) -> bool:
        return self.one_course and not (self.stuck or self.broken or self.left_over)


Barrier = tuple[int, int, int, int, int]  # count, pending, bytes, phases completed, life; life below zero: invalid
State = tuple[tuple[tuple[str, int], ...], tuple[tuple[str, Barrier], ...], tuple[tuple[str, int], ...]]


def search(program: Program) -> Seen:
    seen, start = Seen(), ((("kernel", 0),), (), ())
    known, todo = {start}, [start]
    while todo:
        moves = _moves(program, todo.pop(), seen)
        todo += [m for m in moves if m not in known]
        known.update(moves)
    for who in [w for w in seen.courses if _of_no_weight(program, program.roles[w[0]][w[1]])]:
        seen.courses[who] = {life for life, _ in seen.courses[who]}
    return seen


def _of_no_weight(program: Program, step: Step) -> bool:
    """Whether a step arrives where nobody waits, and single arrivals are all there is: its phase changes nothing."""
    if not isinstance(step, Arrive):
        return False
    every = (s for steps in program.roles.values() for s in steps if isinstance(s, Arrive | Wait | Copy))
    return all(isinstance(s, Arrive) and (s.count, s.expects) == (1, 0) for s in every if s.barrier == step.barrier)


def _moves(program: Program, state: State, seen: Seen) -> list[State]:
    roles, barriers, flying = state
    found: list[State | None] = []
    for name, at in roles:
        if at < len(program.roles[name]):
            found.append(_step(program, state, name, at, seen))
    for copy in flying:
        rest = list(flying)
        rest.remove(copy)
        step = program.roles[copy[0]][copy[1]]
        assert isinstance(step, Copy)
        met = _reach(dict(barriers), step.barrier, step.arrivals, -step.brings, (*copy, "lands"), seen)
        found.append(None if met is None else (roles, met, tuple(rest)))
    if found and all(m == state for m in found):
        seen.stuck = True
    if not found or dict(roles)["kernel"] == len(program.roles["kernel"]):
        seen.left_over |= bool(flying) or any(b[2] for _, b in barriers if b[4] >= 0)
    return [m for m in found if m is not None and m != state]


def _step(program: Program, state: State, role: str, at: int, seen: Seen) -> State | None:
    """The state after it; the same state where it blocks; None where it breaks a rule."""
    roles, barriers, flying = dict(state[0]), dict(state[1]), state[2]
    step = program.roles[role][at]
    seen.overlap |= any(slot == x and (w or y) for slot, w in _uses(step) for x, y in _under_way(program, state, role))
    roles[role] = at + 1
    after = tuple(barriers.items())
    if isinstance(step, Fork):
        roles |= dict.fromkeys(step.roles, 0)
    elif isinstance(step, Join):
        if any(roles[c] < len(program.roles[c]) for c in step.roles):
            return state
    elif not isinstance(step, Use):
        live = barriers.get(step.barrier, (0, 0, 0, 0, -1))
        used = any(program.roles[r][p].barrier == step.barrier for r, p in flying)
        if isinstance(step, Init | Inval) and live[4] >= 0:  # a wait that others stand at may be looking at it
            standing = [program.roles[r][p] for r, p in state[0] if p < len(program.roles[r])]
            used |= any(isinstance(s, Wait) and s.barrier == step.barrier for s in standing)
        if (isinstance(step, Init | Inval) and used) or (live[4] < 0 and not isinstance(step, Init)):
            seen.broken = True
            return None
        if isinstance(step, Init | Inval):
            seen.courses[role, at].add((live[4], live[3]))
        if isinstance(step, Init):
            after = _set(barriers, step.barrier, (step.count, step.count, 0, 0, abs(live[4]) + 1))
        elif isinstance(step, Inval):
            after = _set(barriers, step.barrier, (0, 0, 0, 0, -live[4]))
        elif isinstance(step, Wait):
            if live[3] & 1 == step.parity & 1:
                return state
            seen.courses[role, at].add((live[4], live[3]))
        elif isinstance(step, Copy):
            seen.courses[role, at].add(live[4])
            flying = tuple(sorted((*flying, (role, at))))
        else:
            met = _reach(barriers, step.barrier, step.count, step.expects, (role, at), seen)
            if met is None:
                return None
            after = met
    return tuple(sorted(roles.items())), tuple(sorted(after)), flying


def _uses(step: Step) -> list[tuple[str, bool]]:
    """Slots that a step begins to use, and whether it writes them."""
    if isinstance(step, Access):
        return [(slot, step.writes) for slot in step.slots]
    return [(step.slot, True)] if isinstance(step, Copy) and step.slot else []


def _under_way(program: Program, state: State, other_than: str) -> list[tuple[str, bool]]:
    """Uses that have begun and may last. One that is done at once lasts until its role takes another step."""
    found = []
    for role, at in state[0]:
        steps = program.roles[role]
        queued = [p for p in range(at) if not _waited_for(steps, p, at) and not _arrived(steps, p, at, role, state[2])]
        now = [at - 1] if at and role != other_than and isinstance(steps[at - 1], Access) else []
        found += [use for p in {*queued, *now} for use in _uses(steps[p])]
    return found + [use for role, p in state[2] for use in _uses(program.roles[role][p])]


def _waited_for(steps: tuple[Step, ...], p: int, at: int) -> bool:
    """Whether a wait since the step at p took its group in, or it needs none."""
    step, groups = steps[p], 0
    if not isinstance(step, Access) or step.queue is None:
        return True
    for later in steps[p:at]:
        if isinstance(later, Commit) and later.queue is step.queue:
            groups += 1
        if isinstance(later, Drain) and later.queue is step.queue and groups > later.pending:
            return True
    return False


def _arrived(steps: tuple[Step, ...], p: int, at: int, role: str, flying: tuple[tuple[str, int], ...]) -> bool:
    """Whether arrivals came that come when the copy at p is done."""
    step = steps[p]
    if not isinstance(step, Access) or step.queue is not Queue.COPIES:
        return False
    return any(isinstance(s := steps[q], Copy) and s.arrivals and (role, q) not in flying for q in range(p, at))


def _set(barriers: dict[str, Barrier], name: str, to: Barrier) -> tuple[tuple[str, Barrier], ...]:
    return tuple(sorted((barriers | {name: to}).items()))


def _reach(
    barriers: dict[str, Barrier], name: str, arrivals: int, expects: int, who: Any, seen: Seen
) -> tuple[tuple[str, Barrier], ...] | None:
    count, pending, tx, phase, life = barriers[name]
    if arrivals > pending:
        seen.broken = True
        return None
    seen.courses[who].add((life, phase))
    pending, tx = pending - arrivals, tx + expects
    if pending == tx == 0:
        pending, phase = count, phase + 1
    return _set(barriers, name, (count, pending, tx, phase, life))


# programs -------------------------------------------------------------------------------------------------------------


def program(barriers: dict[str, int], roles: dict[str, list[Step]], ends: bool = True) -> Program:
    """Roles that run at once on initialised barriers, which are invalidated at the end."""
    kernel: list[Step] = [Init(b, count) for b, count in barriers.items()]
    kernel += [Fork(tuple(roles)), Join(tuple(roles))]
    kernel += [Inval(b) for b in barriers] if ends else []
    return Program({"kernel": tuple(kernel), **{name: tuple(steps) for name, steps in roles.items()}})


def pipeline(slots: int, trips: int, consumers: int, bytes_: int = 64, ends: bool = True) -> Program:
    """One producer that copies into slots, consumers that free them: what a warp-specialized kernel does."""
    barriers = {f"{kind}{s}": 1 if kind == "full" else consumers for kind in ("full", "empty") for s in range(slots)}
    producer: list[Step] = []
    for i in range(trips):
        s, phase = i % slots, i // slots & 1
        producer += [Wait(f"empty{s}", phase ^ 1), Arrive(f"full{s}", expects=bytes_), Copy(f"full{s}", brings=bytes_)]
    roles = {"producer": producer}
    for c in range(consumers):
        roles[f"consumer{c}"] = []
        for i in range(trips):
            s, phase = i % slots, i // slots & 1
            roles[f"consumer{c}"] += [Wait(f"full{s}", phase), Arrive(f"empty{s}")]
    return program(barriers, roles, ends)


@st.composite
def random_programs(draw: st.DrawFn) -> Program:
    barriers = {b: draw(st.integers(1, 2)) for b in "ab"[: draw(st.integers(1, 2))]}
    name = st.sampled_from(sorted(barriers))
    step = st.one_of(
        st.builds(Wait, name, st.integers(0, 1)),
        st.builds(Arrive, name, st.integers(1, 2)),
        st.builds(Arrive, name, st.just(1), st.sampled_from([16, 32])),
        st.builds(Copy, name, st.sampled_from([16, 32])),
        st.builds(Copy, name, st.just(0), st.just(1)),
    )
    rare = st.one_of(step, step, step, step, st.builds(Inval, name), st.builds(Init, name, st.integers(1, 2)))
    roles = {f"r{i}": draw(st.lists(rare, max_size=5)) for i in range(draw(st.integers(1, 3)))}
    return program(barriers, roles, draw(st.booleans()))


@st.composite
def broken_pipelines(draw: st.DrawFn) -> Program:
    """A pipeline with up to three small changes."""
    slots = draw(st.integers(1, 2))
    built = pipeline(slots, draw(st.integers(0, 2 * slots + 1)), draw(st.integers(1, 2)), ends=draw(st.booleans()))
    return _broken(draw, built)


@st.composite
def broken_users(draw: st.DrawFn) -> Program:
    """Roles that share slots of memory, with up to three small changes."""
    slots, late = draw(st.integers(1, 2)), draw(st.booleans())
    built = users(slots, draw(st.integers(1, slots + 2)), late, draw(st.booleans()))
    return _broken(draw, built)


def users(slots: int, trips: int, late: bool = False, threads: bool = False) -> Program:
    """A producer that copies into slots, by TMA or with its threads, and a consumer whose dots read them.

    With `late` the consumer waits for a dot when the next is under way, and frees its slot then.
    """
    barriers = {f"{kind}{s}": 1 for kind in ("full", "empty") for s in range(slots)}
    producer: list[Step] = []
    consumer: list[Step] = []
    for i in range(trips):
        s, phase = i % slots, i // slots & 1
        producer.append(Wait(f"empty{s}", phase ^ 1))
        if threads:
            producer += [Access((f"m{s}",), True, "copy", Queue.COPIES), Commit(Queue.COPIES), Copy(f"full{s}", 0, 1)]
        else:
            producer += [Arrive(f"full{s}", expects=64), Copy(f"full{s}", brings=64, slot=f"m{s}")]
        consumer += [Wait(f"full{s}", phase), Access((f"m{s}",), False, "dot", Queue.DOTS), Commit(Queue.DOTS)]
        if not late or slots == 1:
            consumer += [Drain(Queue.DOTS), Arrive(f"empty{s}")]
        elif i:
            consumer += [Drain(Queue.DOTS, 1), Arrive(f"empty{(i - 1) % slots}")]
    return program(barriers, {"producer": producer, "consumer": consumer})


@st.composite
def random_users(draw: st.DrawFn) -> Program:
    """Two roles that do this and that to a slot or two, around barriers."""
    slot = st.sampled_from(["m", "n"]).map(lambda s: (s,))
    queue, both = st.sampled_from([None, Queue.DOTS, Queue.COPIES]), st.booleans()
    step = st.one_of(
        st.builds(Access, slot, both, st.just("dot"), queue),
        st.builds(Access, slot, both, st.just("dot"), queue),
        st.builds(Commit, st.sampled_from([Queue.DOTS, Queue.COPIES])),
        st.builds(Drain, st.sampled_from([Queue.DOTS, Queue.COPIES]), st.integers(0, 1)),
        st.just(Wait("a", 0)),
        st.just(Wait("b", 0)),
    )
    first, second = (draw(st.lists(step, max_size=4)) for _ in range(2))
    started: Step = draw(st.sampled_from([Copy("b", 64, slot="m"), Copy("b", 64, slot="n")]))
    first.insert(draw(st.integers(0, len(first))), Arrive("a"))
    at = draw(st.integers(0, len(second)))
    second[at:at] = [Arrive("b", expects=64), started]
    return program({"a": 1, "b": 1}, {"r": [*first, Wait("b", 0)], "s": [*second, Wait("b", 0)]})


def _broken(draw: st.DrawFn, built: Program) -> Program:
    roles = {name: list(steps) for name, steps in built.roles.items()}
    for _ in range(draw(st.integers(0, 3))):
        role = draw(st.sampled_from(sorted(roles)))
        steps = roles[role]
        places = [i for i, s in enumerate(steps) if not isinstance(s, Fork | Join)]
        if places:
            at, other = draw(st.sampled_from(places)), draw(st.sampled_from(places))
            if draw(st.integers(0, 4)) == 0:
                steps.insert(other, steps.pop(at))
            else:
                _change(steps, at, draw(st.integers(0, 3)))
    return Program({name: tuple(steps) for name, steps in roles.items()})


def _change(steps: list[Step], at: int, how: int) -> None:
    step = steps[at]
    if how == 0:
        del steps[at]
    elif how == 1:
        steps.insert(at, step)
    elif how == 2 and at + 1 < len(steps) and not isinstance(steps[at + 1], Fork | Join):
        steps[at : at + 2] = reversed(steps[at : at + 2])
    elif isinstance(step, Wait):
        steps[at] = replace(step, parity=step.parity ^ 1)
    elif isinstance(step, Copy):
        steps[at] = replace(step, brings=2 * step.brings)
    elif isinstance(step, Arrive):
        steps[at] = replace(step, expects=2 * step.expects) if step.expects else replace(step, count=2)
    elif isinstance(step, Init):
        steps[at] = replace(step, count=step.count % 2 + 1)
    elif isinstance(step, Drain):
        steps[at] = replace(step, pending=step.pending + 1)
    elif isinstance(step, Access):
        steps[at] = replace(step, slots=("m0",))
