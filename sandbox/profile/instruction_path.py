"""What runs between two instructions of machine code, where that is always the same but for the turns of one loop.

Works on instructions with branch targets and relies on `machine_loops.py` for loops. Knows nothing of scopes and
clocks; `instructions_per_cycle.py` counts with it. A predicated instruction counts whether its predicate holds or not:
it is issued all the same.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from pgo_agent.sandbox.profile import machine_loops
from pgo_agent.sandbox.profile.backend import Instruction
from pgo_agent.sandbox.profile.machine_loops import Edges

_TRIES = "SYNCS.PHASECHK"  # asks whether a phase of an mbarrier is over
WAITS = "it waits for a barrier in a loop that turns as often as it must"
BRANCHES = "it branches: what it executes depends on the data"
CALLS = "it calls a function"
NOWHERE = "its end is not reached from its begin"
MIDDLE = "its loop ends in the middle of a turn"


@dataclass(frozen=True)
class Stretch:
    """Indices of instructions, in the order of execution."""

    once: tuple[int, ...]  # from the first one on; the end is not in it
    turn: tuple[int, ...] = ()  # of one turn of its loop, which is entered once
    why: str = ""  # why it cannot be known; then there are no indices


class _NoPath(Exception):
    pass


def between(code: Sequence[Instruction], begin: int, ends: Collection[int]) -> Stretch:
    """Return what is executed from `begin` until the first of `ends` comes; a loop on the way is taken to turn at least
    once.

    Ways that end elsewhere (an exit, a trap) do not count: they never come to an end.
    """
    try:
        return _between(code, begin, frozenset(ends))
    except _NoPath as e:
        return Stretch((), (), str(e))


def _between(code: Sequence[Instruction], begin: int, ends: frozenset[int]) -> Stretch:
    edges = _ways(code, begin, ends)
    if any(code[i].opcode.partition(".")[0] == "CALL" for i in edges):
        raise _NoPath(CALLS)
    loops = machine_loops.natural(edges, begin)
    inner = [body for body in loops if not any(set(other) < set(body) for other in loops)]
    if any(code[i].opcode.startswith(_TRIES) for body in inner for i in body):
        raise _NoPath(WAITS)
    if len(loops) > 1:
        raise _NoPath(f"it holds {len(loops)} loops")
    if not loops:
        return Stretch(_walk(edges, begin, ends))
    return _around(edges, begin, ends, frozenset(loops[0]))


def _around(edges: Edges, begin: int, ends: frozenset[int], body: frozenset[int]) -> Stretch:
    """Return the way to the loop, one turn, and the way from there to the end."""
    into = {t for i, after in edges.items() if i not in body for t in after if t in body}
    if begin in body or len(into) != 1:
        raise _NoPath(BRANCHES)
    (header,) = into
    turn = _turn(edges, body, header)
    ahead = [t for t in edges[turn[-1]] if t not in body]
    if len(ahead) != 1:
        raise _NoPath(BRANCHES)
    return Stretch((*_walk(_towards(edges, header), begin, into), *_walk(edges, ahead[0], ends)), turn)


def _turn(edges: Edges, body: frozenset[int], header: int) -> tuple[int, ...]:
    """Return the only way from a loop's header back to it, if the loop is left at its end alone."""
    within = {i: tuple(t for t in edges[i] if t in body) for i in body}
    if len(within[header]) != 1:
        raise _NoPath(BRANCHES)
    turn = (header, *_walk(within, within[header][0], {header}))
    if any(set(edges[i]) - body for i in turn[:-1]):
        raise _NoPath(MIDDLE)
    return turn


def _walk(edges: Edges, begin: int, ends: Collection[int]) -> tuple[int, ...]:
    """Return the only way from `begin` to an end, which is not in it."""
    way, at = list[int](), begin
    while at not in ends:
        way.append(at)
        if len(edges[at]) != 1:
            raise _NoPath(BRANCHES)
        at = edges[at][0]
    return tuple(way)


def _ways(code: Sequence[Instruction], begin: int, ends: frozenset[int]) -> Edges:
    """Return what may follow each instruction on a way from `begin` to an end."""
    after = dict[int, tuple[int, ...]]()
    pending = [begin]
    while pending:
        i = pending.pop()
        if i not in after and i not in ends:
            after[i] = machine_loops.after(code, i)
            pending += after[i]
    arrive = _reaching(after, ends)
    if begin not in arrive:
        raise _NoPath(NOWHERE)
    return {i: tuple(t for t in after[i] if t in arrive or t in ends) for i in after if i in arrive}


def _reaching(after: Edges, goals: Iterable[int]) -> set[int]:
    """Return the instructions that some way leads from to a goal."""
    before: dict[int, list[int]] = {}
    for i, following in after.items():
        for t in following:
            before.setdefault(t, []).append(i)
    reached, pending = set[int](), [b for g in goals for b in before.get(g, ())]
    while pending:
        i = pending.pop()
        if i not in reached:
            reached.add(i)
            pending += before.get(i, ())
    return reached


def _towards(edges: Edges, goal: int) -> Edges:
    """Return the edges without those from which the goal is not reached any more."""
    near = _reaching(edges, [goal]) | {goal}
    return {i: tuple(t for t in after if t in near) for i, after in edges.items()}
