"""Reads and writes of shared memory in TTGIR as steps of a role, and the groups of cp.async, wgmma and TMA stores.

Semantics follow the dialects and their lowering: each asynchronous dot and each TMA store is its own group, a
synchronous dot also waits for all before it, and `local_alloc` stores its operand. Waits for groups never hang. They
are checked not to pass too early: by their tokens here, by reads and writes in `shared_memory.py`. Only whole slots of
known index are followed, and none while a role's branch is unknown.
"""

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pgo_agent.sandbox.gate.barriers.finding import Finding, Kind
from pgo_agent.sandbox.gate.barriers.program import Access, Commit, Drain, Fence, Forget, Free, Queue, Use
from pgo_agent.sandbox.gate.barriers.values import Frame, Memory, Role, Token, Undecided, Value
from pgo_agent.sandbox.ttgir.tree import Op

if TYPE_CHECKING:
    from pgo_agent.sandbox.gate.barriers.control import Handler
    from pgo_agent.sandbox.gate.barriers.interpret import Unroller


def slot(value: Value) -> str | None:
    """Return the name of the slot if the value is all of it, else None."""
    if not isinstance(value, Memory) or value.slot is None or not all(isinstance(i, int) for i in value.slot):
        return None
    return value.name + "".join(f"[{i}]" for i in value.slot)


def note(u: "Unroller", op: Op, values: Sequence[Value], role: Role) -> None:
    """Note what an operation does to shared memory, where it has no other effect here."""
    at = u.at
    if op.name == _FENCE:
        _step(role, Fence(at(op)))
    elif op.name == "ttg.local_load":
        _step(role, Access(_slots(values[:1]), False, "load", None, at(op)))
    elif op.name == "ttg.local_store":
        stored(u, op, values[1], role)
    elif op.name in _STORES:
        _step(role, Access(_slots(values), False, "TMA store", Queue.STORES, at(op)), Commit(Queue.STORES, at(op)))
    elif op.regions or queued(op):
        passed_over(u, op, role)


def stored(u: "Unroller", op: Op, memory: Value, role: Role) -> None:
    """Note a store by all threads."""
    _step(role, Access(_slots([memory]), True, "store", None, u.at(op), True))


def _slots(values: Sequence[Value]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(s for v in values if (s := slot(v)) is not None))


def _step(role: Role, *steps: Use) -> None:
    if role.followed:
        role.steps += steps


def passed_over(u: "Unroller", op: Op, role: Role) -> None:
    """Note an operation that was not followed: it may have waited for anything, and written anywhere."""
    if u.queues(op):
        _step(role, Forget(u.at(op)))
    if u.touches_memory(op):
        u.untracked |= u.allocated


def untracked(op: Op, values: Sequence[Value], role: Role) -> Iterator[str]:
    """Give the allocations that an operation may write to without a step that says so.

    Memory that is not known is none of the tracked: what made it so was given them here, or was passed over.
    """
    at = _WRITTEN.get(op.name)
    written = values[at:][:1] if at is not None else () if op.name in _TRACKED else values
    for value in written:
        if isinstance(value, Memory) and (at is None or slot(value) is None or not role.followed):
            yield value.name


# groups ---------------------------------------------------------------------------------------------------------------


def started(u: "Unroller", op: Op, values: Sequence[Value], frame: Frame, role: Role) -> Sequence[Value]:
    """Start a copy; the next commit groups all copies without a group (PTX, cp.async.commit_group)."""
    _step(role, Access(_slots(values[1:2]), True, "copy", Queue.COPIES, u.at(op)))
    return [Token(None if role.groups is None else role.groups + 1, u.at(op))]


def commit(u: "Unroller", op: Op, values: Sequence[Value], frame: Frame, role: Role) -> Sequence[Value]:
    _step(role, Commit(Queue.COPIES, u.at(op)))
    if role.groups is None:
        return ()
    role.groups += 1
    return [Token(role.groups, u.at(op))]


def wait_groups(u: "Unroller", op: Op, values: Sequence[Value], frame: Frame, role: Role) -> Sequence[Value]:
    """Wait for all but the last `num` groups; those of the operands must be among them."""
    pending = _pending(u, op, "num")
    _step(role, Drain(Queue.COPIES, max(pending, 0), u.at(op)))
    for token in values:
        if not isinstance(token, Token) or token.group is None or role.groups is None:
            continue
        if token.group > role.groups:
            sentence = f"the wait at {u.at(op)} is for the copies at {token.at}, which were never committed to a group"
            u.findings.append(Finding(Kind.GROUPS, sentence))
        elif token.group > role.groups - pending:
            sentence = (
                f"the wait at {u.at(op)} lets the last {pending} groups of copies pending, "
                f"and the one it is for, committed at {token.at}, is among them"
            )
            u.findings.append(Finding(Kind.GROUPS, sentence))
    return ()


def dot(u: "Unroller", op: Op, values: Sequence[Value], frame: Frame, role: Role) -> Sequence[Value]:
    """Read the operands. Early uses of the result are not checked: ptxas then waits itself (C7514, C7517)."""
    _step(role, Access(_slots(values[:2]), False, "dot", Queue.DOTS, u.at(op)), Commit(Queue.DOTS, u.at(op)))
    if not op.integer("isAsync"):
        _step(role, Drain(Queue.DOTS, 0, u.at(op)))
    return ()


def freed(u: "Unroller", op: Op, values: Sequence[Value], frame: Frame, role: Role) -> Sequence[Value]:
    if isinstance(values[0], Memory):
        _step(role, Free(values[0].name, u.at(op)))
    return ()


def wait_dots(u: "Unroller", op: Op, values: Sequence[Value], frame: Frame, role: Role) -> Sequence[Value]:
    """Wait for dots; the results are the operands."""
    _step(role, Drain(Queue.DOTS, max(_pending(u, op, "pendings"), 0), u.at(op)))
    return values if len(values) == len(op.results) else ()


def wait_stores(u: "Unroller", op: Op, values: Sequence[Value], frame: Frame, role: Role) -> Sequence[Value]:
    _step(role, Drain(Queue.STORES, max(_pending(u, op, "pendings"), 0), u.at(op)))
    return ()


def _pending(u: "Unroller", op: Op, name: str) -> int:
    pending = op.integer(name)
    if pending is None:
        raise Undecided(f"{op.name} at {u.at(op)} does not say how many may be pending")
    if pending < 0:
        u.findings.append(Finding(Kind.GROUPS, f"{op.name} at {u.at(op)} waits until {pending} are pending"))
    return pending


HANDLERS: "dict[str, Handler]" = {
    "ttg.async_copy_global_to_local": started,
    "ttg.async_commit_group": commit,
    "ttg.async_wait": wait_groups,
    "ttng.warp_group_dot": dot,
    "ttng.warp_group_dot_wait": wait_dots,
    "ttng.async_tma_store_wait": wait_stores,
    "ttg.local_dealloc": freed,
}
_STORES = frozenset({"ttng.async_tma_copy_local_to_global", "ttng.async_tma_reduce", "ttng.async_tma_scatter"})
_FENCE = "ttng.fence_async_shared"
_QUEUED = _STORES | HANDLERS.keys() - {"ttg.local_dealloc"} | {"tt.call", _FENCE}
_WRITTEN = {  # operation -> which operand it writes to
    "ttg.local_store": 1,
    "ttg.async_copy_global_to_local": 1,
    "ttng.async_tma_copy_global_to_local": -3,
    "ttng.async_tma_gather": -3,
}
_TRACKED = (  # they write no memory but barriers, or hand memory on
    _STORES
    | {
        "ttg.local_load",
        "ttg.local_alloc",
        "ttg.local_dealloc",
        "ttg.warp_specialize",
        "scf.for",
        "scf.while",
        "scf.if",
    }
    | {"ttng.warp_group_dot", "ttng.warp_group_dot_wait"}
    | {f"ttg.memdesc_{view}" for view in ("index", "subslice", "trans", "reshape", "reinterpret")}
    | {f"ttng.{name}_barrier" for name in ("init", "inval", "arrive", "wait")}
    | {"ttng.barrier_expect", "ttng.async_copy_mbarrier_arrive"}
)
_IN_ASSEMBLY = re.compile(r"wait|commit|wgmma|fence")


def queued(op: Op) -> bool:
    """Whether an operation may start, group or await cp.async, wgmma or TMA stores."""
    if "inline_asm" in op.name:
        return any(_IN_ASSEMBLY.search(word) for word in op.words)
    return op.name in _QUEUED
