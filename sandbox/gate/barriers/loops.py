"""The loops of a kernel with barriers or asynchronous copies, and whether the runs of a simulation entered them.

Runs that never enter a loop, or leave it before every slot of its ring was used, show nothing of it. Fewer iterations
are enough where the text fixes their number, or a launch of a case runs no more.
"""

from collections.abc import Iterator, Mapping

from pgo_agent.sandbox.gate.barriers.finding import Finding, Kind, Seen
from pgo_agent.sandbox.gate.barriers.interpret import Unroller
from pgo_agent.sandbox.ttgir import types
from pgo_agent.sandbox.ttgir.tree import Module, Op

_LOOPS = frozenset({"scf.for", "scf.while"})


def most_slots(module: Module) -> int:
    """Return the length of the largest indexed array of barriers or buffers, at least 1."""
    indexed = [types.shaped(op.operand_types[0]) for op in module.walk() if _indexes(op)]
    return max((s.shape[0] for s in indexed if s and s.shape), default=1)


def _indexes(op: Op) -> bool:
    return op.name == "ttg.memdesc_index" and bool(op.operand_types)


def of(module: Module) -> dict[str, Seen]:
    """Return the kernel's loops with barriers, copies or wgmma, by location, not entered yet."""
    u, constants = Unroller(module, {}), _constants(module)
    held = (op for op in module.kernel.walk() if op.name in _LOOPS and (u.concerns(op, True) or u.queues(op)))
    return {str(u.at(op)): Seen(fixed=op.name == "scf.for" and constants.issuperset(op.operands[:3])) for op in held}


def _constants(module: Module) -> set[str]:
    """Return the values that the text fixes. Partitions' arguments count as free."""
    constants: set[str] = set()
    for op in module.kernel.walk():
        computed = op.name.startswith("arith.") and constants.issuperset(op.operands)
        constants.update(op.results if op.name == "arith.constant" or computed else ())
    return constants


def unseen(loops: Mapping[str, Seen], slots: int) -> Finding | None:
    """Return an undecided finding where a loop was not entered, or not every slot was used; else None."""
    sentence = "; ".join(_describe_unseen(loops, slots))
    return Finding(Kind.UNDECIDED, sentence, unsettled=True) if sentence else None


def _describe_unseen(loops: Mapping[str, Seen], slots: int) -> Iterator[str]:
    for at, seen in loops.items():
        whole = seen.fixed or seen.most >= slots or (seen.launched and seen.most)
        if not whole:
            times = f"at most {seen.most} time{'s' * (seen.most != 1)}" if seen.most else "never"
            why = f": {seen.why}" if seen.why else ""
            yield f"the loop at {at} was entered {times} in all runs, and its ring has {slots} slots{why}"
