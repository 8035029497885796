"""The parts of a kernel that are worth a time of their own: waits, dots, copies, what lies between them, loops, roles.

Reads the final TTGIR as `ttgir.reader` gives it. A part is a stretch of ops of one block, for a record's start and end
must stand in one block; inside of reductions and other ops with regions that compute, no record may stand. What a part
covers by the text is not all that the GPU does in it: ptxas may move arithmetic, though not loads and waits, across a
clock read.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from pgo_agent.sandbox.gate.barriers.values import place
from pgo_agent.sandbox.ttgir import types
from pgo_agent.sandbox.ttgir.tree import Block, Module, Op


class Kind(StrEnum):
    ROLE = "role"  # all that a role does
    LOOP = "loop"
    COPY_WAIT = "copy wait"  # for cp.async
    BARRIER_WAIT = "barrier wait"  # for an mbarrier, or for the other warps of the region
    DOT_WAIT = "dot wait"  # for wgmma
    DOT = "dot"  # its issue, or all of it where it is not asynchronous
    COPY = "copy"  # issue of cp.async or TMA into shared memory
    BODY = "body"  # arithmetic on tensors, reductions, changes of layout: a softmax
    LOAD = "load"  # global memory to registers
    STORE = "store"  # registers or shared memory to global memory, and waits for it
    EMPTY = "empty"  # nothing


HOLDING = frozenset({Kind.ROLE, Kind.LOOP, Kind.EMPTY})  # scopes that hold others, or nothing


@dataclass(frozen=True)
class Part:
    kind: Kind
    role: str
    ops: tuple[Op, ...]  # consecutive ops of one block
    depth: int  # of loops
    source: str  # "kernel.py:20", or empty


KINDS = {
    "ttg.async_wait": Kind.COPY_WAIT,
    "ttng.wait_barrier": Kind.BARRIER_WAIT,
    "gpu.barrier": Kind.BARRIER_WAIT,
    "ttg.barrier": Kind.BARRIER_WAIT,
    "ttg.local_barrier": Kind.BARRIER_WAIT,
    "ttng.warp_group_dot_wait": Kind.DOT_WAIT,
    "ttng.warp_group_dot": Kind.DOT,
    "tt.dot": Kind.DOT,
    "tt.dot_scaled": Kind.DOT,
    "ttg.async_copy_global_to_local": Kind.COPY,
    "ttg.async_commit_group": Kind.COPY,
    "ttng.async_tma_copy_global_to_local": Kind.COPY,
    "ttng.async_tma_gather": Kind.COPY,
    "ttng.barrier_expect": Kind.COPY,
    "tt.load": Kind.LOAD,
    "tt.store": Kind.STORE,
    "tt.atomic_rmw": Kind.STORE,
    "tt.atomic_cas": Kind.STORE,
    "ttng.async_tma_copy_local_to_global": Kind.STORE,
    "ttng.async_tma_reduce": Kind.STORE,
    "ttng.async_tma_scatter": Kind.STORE,
    "ttng.async_tma_store_wait": Kind.STORE,
    "tt.reduce": Kind.BODY,
    "tt.scan": Kind.BODY,
    "tt.elementwise_inline_asm": Kind.BODY,
    "tt.map_elementwise": Kind.BODY,
    "ttg.local_load": Kind.BODY,
    "ttg.local_store": Kind.BODY,
}
ALONE = frozenset({Kind.COPY_WAIT, Kind.BARRIER_WAIT, Kind.DOT_WAIT, Kind.DOT})  # never several ops together
APART = frozenset({"ttng.arrive_barrier", "ttg.async_copy_mbarrier_arrive"})  # other roles go on here
LOOPS = frozenset({"scf.for", "scf.while"})
ENTERED = LOOPS | {"scf.if"}  # records may stand in their blocks
_ARITHMETIC = ("arith.", "math.", "tt.extern_elementwise", "tt.fp_to_fp", "ttg.convert_layout", "tt.precise")


def parts(module: Module) -> tuple[Part, ...]:
    """Return all parts of the kernel in the order of the text; a part that holds others stands before them."""
    return tuple(_Finder(module).function())


class _Finder:
    def __init__(self, module: Module) -> None:
        self.module, self.roles = module, dict[str, int]()

    def function(self) -> Iterator[Part]:
        """Yield the kernel's parts. One that returns early has several blocks, and so no part as a whole."""
        blocks = self.module.kernel.regions[0].blocks
        if len(blocks) == 1:
            yield from self.role("kernel", blocks[0])
            return
        for block in blocks:
            yield from self.block(block, "kernel", 0)

    def role(self, name: str, block: Block) -> Iterator[Part]:
        if len(block.ops) > 1:
            yield self.part(Kind.ROLE, name, list(block.ops[:-1]), 0)
            yield from self.block(block, name, 0)

    def block(self, block: Block, role: str, depth: int) -> Iterator[Part]:
        """Yield the runs of ops of one kind; ops that say nothing neither begin nor end one."""
        run: list[Op] = []  # from its first op of a kind to its last
        silent: list[Op] = []  # after it
        kind: Kind | None = None
        for op in block.ops:
            own_kind = kind_of(op)
            if own_kind and own_kind is kind and own_kind not in ALONE:
                run, silent = [*run, *silent, op], []
                continue
            if own_kind is None and not self.parting(op):
                silent.append(op)
                continue
            if kind:
                yield self.part(kind, role, run, depth)
            run, silent, kind = [op], [], own_kind
            if own_kind is None:
                yield from self.inside(op, role, depth)
        if kind:
            yield self.part(kind, role, run, depth)

    def parting(self, op: Op) -> bool:
        return op.name in APART or op.name == "ttg.warp_specialize" or (op.name in ENTERED and _structured(op))

    def inside(self, op: Op, role: str, depth: int) -> Iterator[Part]:
        if op.name == "ttg.warp_specialize":
            for region in op.regions:
                for block in region.blocks[:1]:
                    yield from self.role(self.fresh(region.name), block)
            return
        if op.name in LOOPS:
            yield self.part(Kind.LOOP, role, [op], depth)
        for region in op.regions:
            for block in region.blocks:
                yield from self.block(block, role, depth + (op.name in LOOPS))

    def fresh(self, name: str) -> str:
        """Return a role's name as the simulator of barriers has it (`sandbox/gate/barriers/interpret.py`): with a
        number from the second on."""
        self.roles[name] = self.roles.get(name, 0) + 1
        return name if self.roles[name] == 1 else f"{name}'{self.roles[name]}"

    def part(self, kind: Kind, role: str, ops: list[Op], depth: int) -> Part:
        places = (place(self.module.locations.frames(o.location)) for o in ops if o.location)
        return Part(kind, role, tuple(ops), depth, next((n for n in places if n), ""))


def kind_of(op: Op) -> Kind | None:
    """Return what an op by itself is worth; None for addresses, constants, and ops with parts inside."""
    if op.name in KINDS:
        return KINDS[op.name]
    if op.name == "ttg.local_alloc" and op.operands:
        return Kind.BODY
    if op.name == "arith.constant" or not op.name.startswith(_ARITHMETIC):
        return None
    shaped = [types.shaped(t) for t in op.result_types]
    return Kind.BODY if any(s and s.element.startswith(("f", "bf")) for s in shaped) else None


def _structured(op: Op) -> bool:
    return any(kind_of(o) for o in op.walk() if o is not op)
