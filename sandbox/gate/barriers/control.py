"""Control flow of TTGIR for the unroller: loops, branches, warp-specialized regions, calls.

A loop or branch without barriers whose course is unknown is skipped, and its results count as unknown. A loop that
starts wgmma or TMA stores is followed like one with barriers if its number of iterations is an expression.
"""

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pgo_agent.sandbox.gate.barriers import accesses
from pgo_agent.sandbox.gate.barriers.program import Forget, Fork, Join
from pgo_agent.sandbox.gate.barriers.terms import Number, Term, apply
from pgo_agent.sandbox.gate.barriers.values import Frame, Impossible, Memory, Role, Undecided, Value
from pgo_agent.sandbox.ttgir.tree import Op

if TYPE_CHECKING:
    from pgo_agent.sandbox.gate.barriers.interpret import Unroller

MOST_SILENT = 64  # iterations of a loop without barriers that are followed for what it computes
MOST_ROUNDS = 10_000  # of a while loop


def for_(u: "Unroller", op: Op, values: Sequence[Value], frame: Frame, role: Role) -> Sequence[Value]:
    low, high, step, *carried = values
    counted: Number | None = None
    if isinstance(low, int | Term) and isinstance(high, int | Term) and isinstance(step, int | Term):
        counted = apply("trips", (low, high, step), 64)
    concerns = u.concerns(op, True) or (u.queues(op) and counted is not None)
    if not concerns and (not isinstance(counted, int) or counted > MOST_SILENT):
        accesses.passed_over(u, op, role)
        return ()
    trips = u.number(counted, op, "the number of iterations", "trips")
    if not isinstance(low, int) or not isinstance(step, int):
        accesses.passed_over(u, op, role)
        return ()
    if concerns:
        u.entered(op, trips)
    block = u.only_block(op.regions[0], op)
    names = [a.name for a in op.defined]
    around, u.rounds = u.rounds, u.rounds * trips
    for i in range(trips):
        frame.update(zip(names, [low + i * step, *carried], strict=True))
        carried = u.block(block, frame, role)
    u.rounds = around
    return carried


def while_(u: "Unroller", op: Op, values: Sequence[Value], frame: Frame, role: Role) -> Sequence[Value]:
    before, after = (u.only_block(r, op) for r in op.regions)
    names, inner = [a.name for a in op.defined], [a.name for a in after.arguments]
    carried, concerns = list(values), u.concerns(op, True)
    for rounds in range(MOST_ROUNDS):
        frame.update(zip(names, carried, strict=True))
        condition, *passed = u.block(before, frame, role)
        if not isinstance(condition, int) and not concerns:
            accesses.passed_over(u, op, role)
            return ()
        holds = u.number(condition, op, "the condition", "flag")
        if not holds or not isinstance(condition, int):
            if concerns:
                u.entered(op, rounds)
            return passed
        frame.update(zip(inner, passed, strict=True))
        carried = u.block(after, frame, role)
    raise Undecided(f"a loop of more than {MOST_ROUNDS} rounds at {u.at(op)}")


def if_(u: "Unroller", op: Op, values: Sequence[Value], frame: Frame, role: Role) -> Sequence[Value]:
    condition = values[0]
    if u.concerns(op, False):
        u.number(condition, op, "the condition", "flag")
    if isinstance(condition, int):
        taken = op.regions[:1] if condition else op.regions[1:]
        return u.block(u.only_block(taken[0], op), frame, role) if taken else ()
    if u.concerns(op, True):
        role.groups = None
    followed, role.followed = role.followed, False
    both = [u.block(u.only_block(region, op), frame, role) for region in op.regions]
    role.followed = followed
    accesses.passed_over(u, op, role)
    if len(both) < 2:
        return ()
    return [_either(condition, a, b) for a, b in zip(*both, strict=True)]


def _either(condition: Value, a: Value, b: Value) -> Value:
    if a == b:
        return a
    if isinstance(condition, Term) and isinstance(a, int | Term) and isinstance(b, int | Term):
        return apply("select", (condition, a, b), 64)
    return None


def specialize(u: "Unroller", op: Op, values: Sequence[Value], frame: Frame, role: Role) -> Sequence[Value]:
    """Start all regions together; the kernel goes on when all have ended. Partitions see only their captures."""
    started: list[Role] = []
    results: Sequence[Value] = ()
    fork = len(role.steps)
    for region in op.regions:
        block = u.only_block(region, op)
        warps = re.search(r"num_warps\((\d+)\)", region.opening)
        part = u.role(region.name, int(warps[1]) if warps else role.threads // 32)
        started.append(part)
        if region.name == "default":
            results = u.block(block, frame, part)
            part.steps.append(Forget(u.at(op)))  # its warps are the kernel's, which may wait for the rest
        else:
            u.block(block, dict(zip((a.name for a in block.arguments), values, strict=True)), part)
    names = tuple(r.name for r in started)
    role.steps[fork:] = [Forget(u.at(op)), Fork(names, u.at(op)), Join(names, u.at(op))]
    return results


def call(u: "Unroller", op: Op, values: Sequence[Value], frame: Frame, role: Role) -> Sequence[Value]:
    barrier = next((v for v in values if isinstance(v, Memory) and v.name in u.barriers), None)
    if barrier is not None or u.concerns(op, False):
        raise Undecided(f"a call of a function that uses barriers, at {u.at(op)}")
    accesses.passed_over(u, op, role)
    return ()


def assume(u: "Unroller", op: Op, values: Sequence[Value], frame: Frame, role: Role) -> Sequence[Value]:
    if values[0] == 0:
        raise Impossible
    return ()


Handler = Callable[["Unroller", Op, Sequence[Value], Frame, Role], Sequence[Value]]
HANDLERS: dict[str, Handler] = {
    "scf.for": for_,
    "scf.while": while_,
    "scf.if": if_,
    "ttg.warp_specialize": specialize,
    "tt.call": call,
    "llvm.intr.assume": assume,
}
