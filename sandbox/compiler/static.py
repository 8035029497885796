"""What a finished build says about itself without a GPU: the compiler's log, and the TTGIR's pipeline.

Codes are ptxas's own: C7510 to C7516 say that wgmma was serialized, C7602 that registers did not suffice. Its code is
`sass_mix.py`'s. Nothing here is a measurement of time.
"""

import math
import re
from collections.abc import Sequence

from pgo_agent.sandbox.bundle.documents import Static
from pgo_agent.sandbox.gate.barriers import runs
from pgo_agent.sandbox.ttgir import reader, types
from pgo_agent.sandbox.ttgir.tree import Op

_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGS = re.compile(r"Used (\d+) registers")
_NOTE = re.compile(r"\b(C7[56]\d\d)\b")
DOTS = ("ttng.warp_group_dot", "ttng.tc_gen5_mma", "tt.dot")
COPIES = ("ttg.async_copy_global_to_local", "ttng.async_tma_copy_global_to_local")


def from_log(log: str) -> Static:
    """Return the registers, stack and spills in bytes, and the codes of ptxas's notes."""
    spills, regs = _SPILLS.search(log), _REGS.search(log)
    stack, stores, loads = (int(x) for x in spills.groups()) if spills else (0, 0, 0)
    return {
        "registers": int(regs[1]) if regs else 0,
        "stack_bytes": stack,
        "spill_store_bytes": stores,
        "spill_load_bytes": loads,
        "notes": sorted(set(_NOTE.findall(log))),
    }


def from_ttgir(text: str) -> Static:
    """Return dots and their precision, the depth of the pipeline, how many dots each wait leaves in flight, and what a
    simulation of its barriers found. Raises Unreadable for a text that Triton did not print.
    """
    module = reader.parse(text)
    ops = list(module.walk())
    indexed = {op.operands[0] for op in ops if op.name == "ttg.memdesc_index"}
    buffers = [
        types.shaped(op.result_types[0]) for op in ops if op.name == "ttg.local_alloc" and op.results[0] in indexed
    ]
    return {
        "dots": sum(op.name in DOTS for op in ops),
        "dot_waits": [op.integer("pendings") for op in ops if op.name == "ttng.warp_group_dot_wait"],
        "pipeline_depth": max((b.shape[0] for b in buffers if b and b.element != "i64"), default=1),
        "async_copies": sum(op.name in COPIES for op in ops),
        "warp_specialized": any(op.name == "ttg.warp_specialize" for op in ops),
        "loop_flops": loop_flops(ops),
        "precision": precision(ops),
        "barriers": runs.simulate(module).as_json() | {"simulator": runs.version()},
    }


def loop_flops(ops: Sequence[Op]) -> int:
    """Return the useful tensor flops of one iteration of the first loop that holds dots, for a whole block; 0 without
    one."""
    loops = ([o for o in op.walk() if o.name in DOTS] for op in ops if op.name == "scf.for")
    return sum(_flops(dot) for dot in next((dots for dots in loops if dots), []))


def _flops(dot: Op) -> int:
    """2 m n k, by the shapes of its operands."""
    a, b = (types.shaped(t) for t in dot.operand_types[:2])
    return 2 * math.prod(a.shape) * b.shape[-1] if a and b else 0


def precision(ops: Sequence[Op]) -> dict[str, int] | None:
    """Return the least precise that its dots are, in bits of a significand: operands and accumulators. None without
    dots.

    A 32-bit operand counts as tf32 where the dot says so (0 in Triton's enum). Triton 3.6 has made three tf32 dots of
    one tf32x3 dot before TTGIR, so `dots` must be looked at with it.
    """
    dots = [op for op in ops if op.name in DOTS and len(op.operand_types) >= 2]
    if not dots:
        return None
    return {
        "operand": min(_significand(t, _rounds_to_tf32(d)) for d in dots for t in d.operand_types[:2]),
        "accumulator": min(_significand((d.result_types or d.operand_types[2:])[0], False) for d in dots),
    }


def _rounds_to_tf32(dot: Op) -> bool:
    return "tf32" in dot.words or dot.integer("inputPrecision") == 0


def _significand(text: str, tf32: bool) -> int:
    shaped = types.shaped(text)
    element = shaped.element if shaped else text
    return 11 if tf32 and element == "f32" else types.significand(element)
