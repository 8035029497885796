"""Loops in which a block waits for what other blocks write: they only read memory until it has changed."""

from dataclasses import dataclass

from pgo_agent.sandbox.ttgir import dataflow
from pgo_agent.sandbox.ttgir.dataflow import ATOMICS, READS, Flow
from pgo_agent.sandbox.ttgir.tree import Op

_IDLE = ("arith.", "scf.", "math.")
_ALSO = frozenset({"tt.addptr", "tt.splat", "tt.bitcast", "gpu.barrier", "ttg.barrier", "ttg.local_barrier"})


@dataclass(frozen=True)
class Spin:
    """A waiting loop."""

    loop: Op
    reads: tuple[Op, ...]  # inside of it, on which its condition depends


def spins(values: Flow) -> list[Spin]:
    """Return the loops of a kernel that wait for memory to change."""
    result = []
    for loop in (op for op in values.order if op.name == "scf.while"):
        inside = [op for op in values.order if values.inside(loop, op)]
        condition = next(
            (o for o in inside if o.name == "scf.condition" and len(values.paths[id(o)]) == _deep(values, loop)), None
        )
        if condition is None or not all(map(_idle, inside)):
            continue
        read = values.read_for(values.operands[id(condition)][:1])
        if reads := tuple(op for op in read if values.inside(loop, op)):
            result.append(Spin(loop, reads))
    return result


def _deep(values: Flow, loop: Op) -> int:
    return len(values.paths[id(loop)]) + 1


def _idle(op: Op) -> bool:
    """Whether an operation only computes with numbers or reads memory."""
    if op.name in READS | ATOMICS:
        return dataflow.scalar(op)
    return op.name.startswith(_IDLE) or op.name in _ALSO or "inline_asm" in op.name
