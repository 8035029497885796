"""Barrier operations of TTGIR as steps of a role, and their operands: numbers, memory, copies.

Semantics follow TritonNvidiaGPUOps.td and its lowering: `barrier_expect` is one arrival that expects bytes; a TMA copy
brings the bytes of its destination and no arrival; an arrive is made by one thread with its whole count, once the warps
of the role have synchronised.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from pgo_agent.sandbox.gate.barriers import accesses
from pgo_agent.sandbox.gate.barriers.control import Handler
from pgo_agent.sandbox.gate.barriers.program import Arrive, Copy, Init, Inval, Wait
from pgo_agent.sandbox.gate.barriers.terms import Term, apply
from pgo_agent.sandbox.gate.barriers.values import Frame, Memory, Role, Undecided, Value
from pgo_agent.sandbox.ttgir import types
from pgo_agent.sandbox.ttgir.tree import Op

if TYPE_CHECKING:
    from pgo_agent.sandbox.gate.barriers.interpret import Unroller


# values ---------------------------------------------------------------------------------------------------------------


def program_id(u: "Unroller", op: Op, values: Sequence[Value], frame: Frame, role: Role) -> Sequence[Value]:
    return [u.leaf("pid", f"program_id({op.words[0]})", 32)]


def num_programs(u: "Unroller", op: Op, values: Sequence[Value], frame: Frame, role: Role) -> Sequence[Value]:
    return [u.leaf("programs", f"num_programs({op.words[0]})", 32)]


def load(u: "Unroller", op: Op, values: Sequence[Value], frame: Frame, role: Role) -> Sequence[Value]:
    """Load an unknown number, the same each time from the same address."""
    type_ = op.result_types[0] if op.result_types else ""
    if len(values) != 1 or not isinstance(values[0], Term) or type_[:1] != "i":
        return ()
    return [u.leaf("load", f"the number loaded from {_as_text(values[0])}", types.bits(type_))]


def _as_text(x: int | Term) -> str:
    if isinstance(x, int):
        return str(x)
    return x.name or f"{x.op}({', '.join(map(_as_text, x.args))})"


def alloc(u: "Unroller", op: Op, values: Sequence[Value], frame: Frame, role: Role) -> Sequence[Value]:
    memory = Memory(u.memory_name(op) if values else u.fresh(op.results[0]), _bytes(op))
    u.allocated.add(memory.name)
    if values:
        accesses.stored(u, op, memory, role)
    return [memory]


def index(u: "Unroller", op: Op, values: Sequence[Value], frame: Frame, role: Role) -> Sequence[Value]:
    memory, slot = values
    if not isinstance(memory, Memory):
        return ()
    index = (*memory.index, slot if isinstance(slot, int | Term) else None)
    return [Memory(memory.name, _bytes(op), index, index if memory.slot == memory.index else None)]


def view(u: "Unroller", op: Op, values: Sequence[Value], frame: Frame, role: Role) -> Sequence[Value]:
    """Return another shape or part of the same memory, which is not modelled as a barrier."""
    memory = values[0]
    if not isinstance(memory, Memory):
        return ()
    slot = memory.slot if memory.bytes == _bytes(op) != 0 else None
    return [Memory(memory.name, _bytes(op), (*memory.index, None), slot)]


def _bytes(op: Op) -> int:
    return _bytes_of(op.result_types[0]) if op.result_types else 0


@lru_cache(maxsize=1024)
def _bytes_of(type_: str) -> int:
    shaped = types.shaped(type_)
    return shaped.bytes if shaped else 0


# barriers -------------------------------------------------------------------------------------------------------------


def _barrier(u: "Unroller", value: Value, op: Op) -> str:
    """Return the name of the barrier. Raises Undecided where it is unknown."""
    if u.clusters:
        raise Undecided(f"{op.name} at {u.at(op)} in a cluster of several CTAs")
    if not isinstance(value, Memory):
        raise Undecided(f"the barrier of {op.name} at {u.at(op)} is not known")
    u.barriers.add(value.name)
    return value.name + "".join(f"[{u.number(i, op, 'the slot')}]" for i in value.index)


def _predicate(u: "Unroller", value: Value, op: Op) -> bool:
    return bool(u.number(value, op, "the predicate", "flag"))


def _count(u: "Unroller", op: Op) -> int:
    if not op.words or not op.words[0].isdigit() or "perThread" in op.attributes:
        raise Undecided(f"the count of {op.name} at {u.at(op)}")
    return int(op.words[0])


def init(u: "Unroller", op: Op, values: Sequence[Value], frame: Frame, role: Role) -> Sequence[Value]:
    role.steps.append(Init(_barrier(u, values[0], op), _count(u, op), u.at(op)))
    return ()


def inval(u: "Unroller", op: Op, values: Sequence[Value], frame: Frame, role: Role) -> Sequence[Value]:
    role.steps.append(Inval(_barrier(u, values[0], op), u.at(op)))
    return ()


def expect(u: "Unroller", op: Op, values: Sequence[Value], frame: Frame, role: Role) -> Sequence[Value]:
    if _predicate(u, values[1], op):
        role.steps.append(Arrive(_barrier(u, values[0], op), 1, _count(u, op), u.at(op)))
    return ()


def arrive(u: "Unroller", op: Op, values: Sequence[Value], frame: Frame, role: Role) -> Sequence[Value]:
    if len(values) < 2 or _predicate(u, values[1], op):
        role.steps.append(Arrive(_barrier(u, values[0], op), _count(u, op), 0, u.at(op)))
    return ()


def wait(u: "Unroller", op: Op, values: Sequence[Value], frame: Frame, role: Role) -> Sequence[Value]:
    dependencies = len(op.operand_types) - 1  # the memory that must stay alive; its types follow the barrier's
    if len(values) - dependencies < 3 or _predicate(u, values[2], op):
        phase = values[1]
        parity = apply("andi", (phase, 1), 32) if isinstance(phase, int | Term) else None
        barrier = _barrier(u, values[0], op)
        role.steps.append(Wait(barrier, u.number(parity, op, "the phase", "flag"), u.at(op)))
    return ()


def copy(u: "Unroller", op: Op, values: Sequence[Value], frame: Frame, role: Role) -> Sequence[Value]:
    """Add a TMA copy or gather. Operands: ..., destination, barrier, predicate."""
    destination, barrier, predicate = values[-3:]
    if _predicate(u, predicate, op):
        if not isinstance(destination, Memory) or not destination.bytes:
            raise Undecided(f"the destination of {op.name} at {u.at(op)} is not known")
        slot = accesses.slot(destination) or ""
        role.steps.append(Copy(_barrier(u, barrier, op), destination.bytes, 0, u.at(op), slot))
    return ()


def copies_arrive(u: "Unroller", op: Op, values: Sequence[Value], frame: Frame, role: Role) -> Sequence[Value]:
    """Let every thread arrive when its cp.async copies are done."""
    if "noIncrement" not in op.attributes:
        raise Undecided(f"{op.name} at {u.at(op)} changes the barrier's count, which is not modelled")
    role.steps.append(Copy(_barrier(u, values[0], op), 0, role.threads, u.at(op)))
    return ()


HANDLERS: dict[str, Handler] = accesses.HANDLERS | {
    "tt.get_program_id": program_id,
    "tt.get_num_programs": num_programs,
    "tt.load": load,
    "ttg.local_alloc": alloc,
    "ttg.memdesc_index": index,
    "ttg.memdesc_subslice": view,
    "ttg.memdesc_trans": view,
    "ttg.memdesc_reshape": view,
    "ttg.memdesc_reinterpret": view,
    "ttng.init_barrier": init,
    "ttng.inval_barrier": inval,
    "ttng.barrier_expect": expect,
    "ttng.arrive_barrier": arrive,
    "ttng.wait_barrier": wait,
    "ttng.async_tma_copy_global_to_local": copy,
    "ttng.async_tma_gather": copy,
    "ttng.async_copy_mbarrier_arrive": copies_arrive,
}
_ON_BARRIERS = frozenset(name for name in HANDLERS if "barrier" in name or HANDLERS[name] is copy)
_IN_GROUPS = frozenset({"ttg.async_commit_group", "ttg.async_wait"})
_VIEWS = frozenset(name for name in HANDLERS if HANDLERS[name] in (alloc, index, view)) | {"ttg.local_dealloc"}
_ONE_ROLE = frozenset(  # synchronize the warps of the role that runs them, or order memory
    {"gpu.barrier", "ttg.barrier", "ttg.local_barrier", "ttng.fence_mbarrier_init_release_cluster"}
)
_SUSPECT = re.compile(r"barrier|arrive|wait|semaphore|aref|commit")


def acts(op: Op, groups: bool) -> bool:
    """Whether an operation changes barriers, or with `groups` groups of cp.async."""
    if op.name in _ON_BARRIERS or op.name == "ttg.warp_specialize" or (groups and op.name in _IN_GROUPS):
        return True
    if op.name in HANDLERS or op.name in _VIEWS or op.regions:
        return False
    return suspect(op) or any("memdesc" in t and "xi64" in t for t in op.operand_types)


def suspect(op: Op) -> bool:
    """Whether an unknown operation may make roles wait for each other."""
    if "inline_asm" in op.name:
        return any("bar" in word for word in op.words)
    return _suspect(op.name)


@lru_cache(maxsize=1024)
def _suspect(name: str) -> bool:
    return (
        name.partition(".")[0] not in ("scf", "tt", "arith") and name not in _ONE_ROLE and bool(_SUSPECT.search(name))
    )
