"""The sentences of findings: which barrier and phase, who waits for whom, at which lines. Decides nothing."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pgo_agent.sandbox.gate.barriers.barrier import Barrier, Contribution, Mark
from pgo_agent.sandbox.gate.barriers.finding import Finding, Kind
from pgo_agent.sandbox.gate.barriers.program import Arrive, Copy, Init, Inval, Join, Program, Wait

if TYPE_CHECKING:
    from pgo_agent.sandbox.gate.barriers.shared_memory import Hazard, InUse
    from pgo_agent.sandbox.gate.barriers.simulator import Blocked, Machine

# (role, barrier) -> its waits, each with the number of phases that were complete
History = Mapping[tuple[str, str], list[tuple[Wait, int]]]


def not_live(name: str, mark: Mark, ended: Mark | None) -> Finding:
    why = f"was invalidated by {ended.role} at {ended.at}" if ended else "was not initialised"
    return Finding(Kind.LIFETIME, f"{mark.role} uses {name} at {mark.at}, but the barrier {why}")


def unordered_init(name: str, mark: Mark, init: Mark) -> Finding:
    sentence = f"{mark.role} uses {name} at {mark.at}, and nothing makes it wait for {init.role} to initialise it"
    return Finding(Kind.LIFETIME, sentence, (f"initialised at {init.at}",))


def not_invalidated(name: str, mark: Mark) -> Finding:
    """Describe a barrier whose memory is freed before it is invalidated (PTX, mbarrier.inval)."""
    return Finding(
        Kind.LIFETIME, f"{mark.role} gives the memory of {name} back at {mark.at}, which was not invalidated"
    )


def in_use(step: Init | Inval, mark: Mark, other: Mark) -> Finding:
    does = "initialises" if isinstance(step, Init) else "invalidates"
    sentence = f"{mark.role} {does} {step.barrier} at {mark.at} while it may be in use"
    return Finding(Kind.LIFETIME, sentence, (f"{other.role}'s step at {other.at} may not have ended by then",))


def too_many(b: Barrier, c: Contribution, history: History) -> Finding:
    sentence = (
        f"more arrivals than the count of {b.name}: {c.mark.role} arrives {c.count} at {c.mark.at}, "
        f"while in phase {b.phase} {_came(b)}{_last_wait(b, b.phase, c, history)}"
    )
    return Finding(Kind.ARRIVALS, sentence, tuple(_reached(x) for x in b.phases[b.phase]))


def _last_wait(b: Barrier, phase: int, c: Contribution, history: History) -> str:
    """Describe why the role came too soon: its last wait on the barrier passed on an older phase."""
    wait, seen = next(reversed(history.get((c.mark.role, b.name), [])), (None, 0))
    if wait is None or seen > phase:
        return ""
    on = f"on phase {seen - 1}, complete before" if seen else "on the fresh barrier"
    return f"; its last wait on it, at {wait.at}, passed {on}"


def wrong_phase(b: Barrier, phase: int, c: Contribution, history: History) -> Finding:
    others = [x for x in b.phases[phase - 1] if x.later or not x.mark.before(c.clock)]
    trace = tuple(f"phase {phase - 1} also needs {x.mark.role} at {x.mark.at}" for x in others)
    if c.later:
        sentence = (
            f"the copy at {c.mark.at} ({c.brings} bytes) is one too many for phase {phase - 1} of {b.name}: "
            f"that phase can complete without it, and its bytes then count for the next"
        )
        return Finding(Kind.BYTES, sentence, trace)
    sentence = (
        f"{c.mark.role} arrives on {b.name} for phase {phase} at {c.mark.at} without knowing that phase {phase - 1} "
        f"is complete: the arrival may count for phase {phase - 1}{_last_wait(b, phase - 1, c, history)}"
    )
    return Finding(Kind.ARRIVALS, sentence, trace)


def overtaken(b: Barrier, phase: int, mark: Mark, done: Sequence[Contribution]) -> Finding:
    before = f"when phase {phase - 1} is complete" if phase else "on the fresh barrier"
    sentence = (
        f"{mark.role}'s wait on {b.name} at {mark.at} passes {before}, but phase {phase} may complete before it "
        f"looks, and it then blocks: nothing makes phase {phase} wait for it"
    )
    return Finding(Kind.OVERTAKEN, sentence, tuple(f"phase {phase}: {x.mark.role} at {x.mark.at}" for x in done))


def early(b: Barrier, seen: int, mark: Mark) -> Finding:
    sentence = (
        f"{mark.role}'s wait on {b.name} at {mark.at} is for phase {seen - 1}, but may pass when only phase "
        f"{seen - 3} is complete: both have the same parity, and the role has not waited for phase {seen - 2}"
    )
    if seen < 3:
        sentence = sentence.replace("when only phase -1 is complete: both have", "on the fresh barrier: it has")
    return Finding(Kind.EARLY, sentence)


def bytes_left(b: Barrier) -> Finding:
    reached = tuple(_reached(x) for x in b.phases[b.phase])
    what = f"{b.bytes} bytes are expected that no copy brings"
    if b.bytes < 0:
        what = f"copies bring {-b.bytes} bytes that nobody expects"
    return Finding(Kind.BYTES, f"at the end of the program {what}, in phase {b.phase} of {b.name}", reached)


def unawaited(name: str, mark: Mark) -> Finding:
    sentence = f"nobody waits for the copy at {mark.at} on {name}: the program may end while it is under way"
    return Finding(Kind.BYTES, sentence)


def _reached(c: Contribution) -> str:
    parts = [f"arrived {c.count}"] if c.count else []
    parts += [f"expected {c.expects} bytes"] if c.expects else []
    parts += [f"brought {c.brings} bytes"] if c.brings else []
    return f"{c.mark.role} {' and '.join(parts)} at {c.mark.at}"


# slots of shared memory -----------------------------------------------------------------------------------------------


def too_soon(program: Program, h: "Hazard") -> Finding:
    """Describe two uses of a slot that may overlap, and what the second waited for."""
    first, second = f"the {h.first.what} at {h.first.mark.at}", f"the {h.second.what} at {h.second.mark.at}"
    if not h.second.writes:
        sentence = f"{second} may read {h.first.slot} before {first} has filled it"
    elif h.first.writes:
        filling = "the same copy, a turn before," if first == second else first
        sentence = f"{second} may overwrite {h.first.slot} while {filling} still fills it"
    else:
        sentence = f"{second} may overwrite {h.first.slot} while {first} still reads it"
    trace = (f"{h.first.mark.role} starts {first}", f"{h.second.mark.role} starts {second}", _last_awaited(program, h))
    return Finding(Kind.MEMORY, f"{sentence}: {_not_ended(h)}", trace)


def not_filled(use: "InUse") -> Finding:
    """Describe a read of a slot that nothing was written to."""
    return Finding(Kind.MEMORY, f"the {use.what} at {use.mark.at} may read {use.slot}, which nothing has filled")


def not_fenced(h: "Hazard") -> Finding:
    """Describe a store by threads that a dot or a TMA store reads without a fence between."""
    sentence = (
        f"the {h.second.what} at {h.second.mark.at} may not see what the {h.first.what} at {h.first.mark.at} wrote "
        f"into {h.first.slot}: no fence stands between them"
    )
    return Finding(Kind.MEMORY, sentence)


def not_awaited(mark: Mark) -> Finding:
    """Describe a TMA store that still runs when the kernel ends."""
    return Finding(Kind.GROUPS, f"nobody waits for the TMA store at {mark.at}: the kernel may end while it still reads")


def _not_ended(h: "Hazard") -> str:
    first, role = h.first, h.second.mark.role
    if first.phases:
        return f"{role} has not waited for it, on {first.barrier}" if first.barrier else f"{role} has not waited for it"
    if first.end is None:
        return f"nobody waits for that {first.what}"
    if first.end == first.mark:
        return f"nothing makes {role} wait for it"
    if first.mark.role == role:
        return f"{role} waits for that {first.what} only later, at {first.end.at}"
    return f"{first.mark.role} waits for that {first.what} at {first.end.at}, and nothing makes {role} wait for this"


def _last_awaited(program: Program, h: "Hazard") -> str:
    """Describe the last step of the first role that the second waited for."""
    who, role = h.first.mark.role, h.second.mark.role
    if who == role:
        return "both are of one role"
    step = program.roles[who][h.known - 1] if h.known else None
    what = f"{who}'s arrival on {step.barrier} at {step.at}" if isinstance(step, Arrive | Copy) else f"{who}'s start"
    return f"the last of {who} that {role} waits for is {what}"


# a run that is stuck --------------------------------------------------------------------------------------------------


def stuck(program: Program, state: "Machine", blocked: "Sequence[Blocked]") -> Finding:
    """Describe a stuck run: a wait that no role can fulfil, or else a circle of waits."""
    waits = {x.role: x.step for x in blocked if isinstance(x.step, Wait)}
    trace = []
    for role, wait in waits.items():
        b = state.barriers[wait.barrier]
        trace.append(f"{_waits(b, role, wait)}: {_why(program, state, role, wait)}")
        trace += ["  " + _reached(c) for c in b.phases[b.phase]]
    trace += [f"{x.role} waits for {', '.join(x.step.roles)} to end" for x in blocked if isinstance(x.step, Join)]
    role = next((r for r, w in waits.items() if not _helpers(program, state, w)), next(iter(waits)))
    circle = _circle(program, state, waits, role)
    if len(circle) == 1:
        b = state.barriers[waits[role].barrier]
        sentence = f"{_waits(b, role, waits[role])}: {_why(program, state, role, waits[role])}"
    else:
        hops = (_waits(state.barriers[waits[r].barrier], r, waits[r], False) for r in circle)
        sentence = f"{', '.join(hops)}: each waits for the next, and the last for the first"
    if state.doubts:
        sentence += f"; before that, {state.doubts[0].sentence}"
    return Finding(Kind.DEADLOCK, sentence, tuple(trace))


def _waits(b: Barrier, role: str, wait: Wait, for_good: bool = True) -> str:
    if for_good:
        return f"{role} waits for good on {b.name}, phase {b.phase} (parity {wait.parity}), at {wait.at}"
    return f"{role} waits on {b.name}, phase {b.phase} ({_came(b)}), at {wait.at}"


def _came(b: Barrier) -> str:
    came = f"{b.count - b.pending} of {b.count} arrivals came"
    if b.bytes > 0:
        return f"{came}, {b.bytes} of the expected bytes are missing"
    return f"{came}, {-b.bytes} bytes came that nobody expected" if b.bytes < 0 else came


def _helpers(program: Program, state: "Machine", wait: Wait) -> list[tuple[str, Arrive | Copy]]:
    """Return for each role its next step that would help to complete the phase."""
    b = state.barriers[wait.barrier]
    helpers = []
    for role, steps in program.roles.items():
        later = steps[state.positions.get(role, 0) :]
        step = next((s for s in later if isinstance(s, Arrive | Copy) and s.barrier == wait.barrier), None)
        if step is not None and (b.pending or isinstance(step, Copy)):  # once all arrived, only bytes can help
            helpers.append((role, step))
    return helpers


def _why(program: Program, state: "Machine", role: str, wait: Wait) -> str:
    b = state.barriers[wait.barrier]
    why = [_came(b)]
    if helpers := _helpers(program, state, wait):
        names = " and ".join(f"{r} at {s.at}" for r, s in helpers)
        who = "it would itself have to go on first" if [r for r, _ in helpers] == [role] else "stuck itself"
        why.append(f"next would come {names}, {who}")
    elif b.pending or b.bytes > 0:
        why.append("nobody is left to arrive" if b.pending else "nobody is left to bring them")
    earlier = state.history.get((role, wait.barrier), [])
    if earlier and earlier[-1][0].parity == wait.parity and b.phase == earlier[-1][1] + 1:
        why.append(
            f"it asks for the same parity as its wait at {earlier[-1][0].at} before, "
            f"and phase {b.phase - 1} in between is complete"
        )
    return ", ".join(why)


def _circle(program: Program, state: "Machine", waits: Mapping[str, Wait], start: str) -> list[str]:
    """Return the roles of a circle: each waits for the next."""
    path = [start]
    while True:
        helpers = [r for r, _ in _helpers(program, state, waits[path[-1]]) if r in waits]
        follows = next((r for r in helpers if r != path[-1]), path[-1])
        if follows in path:
            return path[path.index(follows) :]
        path.append(follows)
