"""Rule: a store that another block loads in the same launch must be released, and the load must acquire it.

A load is guarded where it comes behind a loop that waits for a flag, or in a branch that a counter decides. Then all
threads of the storing block must have stored: this needs a barrier, and a releasing atomic on the flag (PTX memory
model: the atomic is one thread's, so a release pattern needs both). The flag must be read by an acquiring atomic.
Atomics that are `relaxed` or in block scope, and plain or volatile accesses, order nothing.

Does not know addresses within a tensor: a store and a load of the same memory with a flag between them are taken to
overlap. Data passed without a flag is missed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pgo_agent.sandbox.gate.synchronisation.finding import Finding, called
from pgo_agent.sandbox.gate.synchronisation.spin_loops import spins
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.ttgir import dataflow
from pgo_agent.sandbox.ttgir.dataflow import ATOMICS, STORES, TMA_REDUCES, TMA_STORES, Flow, Touch
from pgo_agent.sandbox.ttgir.tree import Module, Op

RULE = "published"
_BARRIERS = frozenset({"gpu.barrier", "ttg.barrier", "ttg.local_barrier", "nvvm.barrier0"})
_BY_CHANCE = frozenset(  # their lowering may synchronise the threads of a block
    {"tt.reduce", "tt.scan", "ttg.convert_layout", "ttg.local_alloc", "ttg.local_store", "ttg.local_load"}
)
_FENCES = ("membar", "fence.acq_rel", "fence.sc")


@dataclass(frozen=True)
class Guard:
    """The loop or branch that a load depends on, and its flag."""

    by: Op  # the loop or the branch
    reads: tuple[Op, ...]  # of the flag
    flags: frozenset[int]  # memory of these storages
    spin: bool


def rule(module: Module, values: Flow, storages: Mapping[int, int]) -> list[Finding]:
    """Return what breaks the rule in one kernel; `storages`: argument -> storage in a launch."""
    return list(dict.fromkeys(_Kernel(module, values, storages).findings()))


class _Kernel:
    def __init__(self, module: Module, values: Flow, storages: Mapping[int, int]) -> None:
        self.module, self.values, self.storages = module, values, storages
        self.touches = list(values.touches())

    def findings(self) -> Iterator[Finding]:
        for guard in self.guards():
            loads = [t for t in self.touches if self.guarded(t, guard)]
            for store in self.touches:
                load = next((x for x in loads if self.memory(x) & self.memory(store) - guard.flags), None)
                if load and store.op.name in STORES | TMA_STORES | TMA_REDUCES and self.counts(store.op, guard):
                    yield from self.unpublished(store.op, guard, load.op)
                    yield from self.unacquired(guard, load.op)

    def memory(self, touch: Touch) -> frozenset[int]:
        """Return the storages that it may touch, without unknown ones."""
        return frozenset(self.storages[r] for r in touch.roots if r in self.storages)

    def guards(self) -> Iterator[Guard]:
        by_op = {id(t.op): self.memory(t) for t in self.touches}
        written = frozenset[int]().union(*(self.memory(t) for t in self.touches if t.writes))
        waits = [(s.loop, s.reads, True) for s in spins(self.values)]
        branches = (op for op in self.values.order if op.name == "scf.if")
        decided = ((op, self.values.read_for(self.values.operands[id(op)][:1])) for op in branches)
        waits += [(op, tuple(filter(dataflow.scalar, reads)), False) for op, reads in decided]
        for by, reads, spin in waits:
            flags = frozenset[int]().union(*(by_op.get(id(r), frozenset()) for r in reads)) & written
            if reads and flags:
                yield Guard(by, reads, flags, spin)

    def guarded(self, touch: Touch, guard: Guard) -> bool:
        if touch.op.name not in dataflow.READS or touch.op in guard.reads:
            return False
        if guard.spin:
            return self.values.follows(touch.op, guard.by) and not self.values.inside(guard.by, touch.op)
        return self.values.inside(guard.by, touch.op)

    def counts(self, store: Op, guard: Guard) -> bool:
        """Whether other blocks may wait for this store; a store inside of the guarding branch does not count."""
        return guard.spin or not self.values.inside(guard.by, store)

    # the two sides ----------------------------------------------------------------------------------------------------

    def unpublished(self, store: Op, guard: Guard, load: Op) -> Iterator[Finding]:
        """Give a finding unless an atomic behind the store releases it; the finding names the mildest defect."""
        later = [
            t.op
            for t in self.touches
            if t.writes
            and self.memory(t) & guard.flags
            and self.values.places[id(t.op)] > self.values.places[id(store)]
        ]
        later = [op for op in later if not self.values.apart(store, op)]
        all_lacks = [self.lacking(store, op) for op in later]
        lacks = [lack for lack in all_lacks if lack]
        if len(lacks) < len(later):  # one lacks nothing
            return
        read = f"{called(self.module, load)} reads what {called(self.module, store)} stores"
        if not lacks:
            yield Finding(
                Verdict.RACE, f"{read} in another block, and nothing behind the store says that it was made", RULE
            )
        else:
            verdict, why = min(lacks, key=lambda lack: lack[0] is not Verdict.UNDECIDED)
            yield Finding(verdict, f"{read} in another block: {why}", RULE)

    def lacking(self, store: Op, signal: Op) -> tuple[Verdict, str] | None:
        """Return what keeps the signal from releasing the store; None: nothing."""
        between, text = self.values.between(store, signal), called(self.module, signal)
        if store.name not in STORES:
            return Verdict.UNDECIDED, f"{text} tells of a TMA store, whose end in global memory is not followed"
        if signal.name not in ATOMICS:
            return Verdict.RACE, f"{text} raises the flag by a plain store, which releases nothing"
        if not _orders(signal, "release") and not _fenced(between):
            return Verdict.RACE, f"{text}, {_order(signal)}, does not release it"
        if dataflow.scalar(store) or any(self.meets(op, store, signal) for op in between):
            return None
        if any(op.name in _BY_CHANCE for op in between):
            return Verdict.UNDECIDED, f"no barrier makes all threads of the block store before {text}, but by chance"
        return Verdict.RACE, f"no barrier makes all threads of the block store before {text} of one of them"

    def meets(self, op: Op, store: Op, signal: Op) -> bool:
        """Whether all threads of the block synchronise there, on every path from the store to the signal."""
        barrier = op.name in _BARRIERS or dataflow.says(op, "bar.sync") or dataflow.says(op, "barrier.sync")
        paths = self.values.paths
        path = paths[id(op)]
        return barrier and (path == paths[id(store)] or paths[id(signal)][: len(path)] == path)

    def unacquired(self, guard: Guard, load: Op) -> Iterator[Finding]:
        """Give a finding where no read of the flag acquires what the load then reads."""
        places = self.values.places
        later = [t.op for t in self.touches if self.memory(t) & guard.flags]
        later = [op for op in later if places[id(guard.by)] < places[id(op)] < places[id(load)]]
        if any(_orders(op, "acquire") for op in (*guard.reads, *later)):
            return
        if _fenced(self.values.between(guard.reads[0], load)):
            return
        first = guard.reads[0]
        yield Finding(
            Verdict.RACE,
            f"{called(self.module, load)} may read what was there before another block's store: "
            f"{called(self.module, first)}, {_order(first)}, does not acquire it",
            RULE,
        )


def _orders(op: Op, side: str) -> bool:
    """Whether an atomic releases or acquires for all blocks of the GPU."""
    return op.name in ATOMICS and bool({side, "acq_rel"} & set(op.words)) and bool({"gpu", "sys"} & set(op.words))


def _order(op: Op) -> str:
    if op.name not in ATOMICS:
        return "a volatile load" if op.integer("isVolatile") else "a plain load"
    return " ".join(w for w in op.words if w in ("relaxed", "acquire", "release", "acq_rel", "cta", "gpu", "sys"))


def _fenced(between: list[Op]) -> bool:
    return any(dataflow.says(op, fence) for op in between for fence in _FENCES)
