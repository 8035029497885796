"""Operations of TTGIR that read or change more than values: places in the grid, loads, stores, atomics, descriptors."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from pgo_agent.sandbox.execution import descriptors
from pgo_agent.sandbox.execution.errors import KernelFault, NotModelled
from pgo_agent.sandbox.execution.launch import Run, Step, Values, nothing
from pgo_agent.sandbox.execution.values import dtype, form, signed, unsigned
from pgo_agent.sandbox.ttgir.tokens import tokens
from pgo_agent.sandbox.ttgir.tree import Op

_AXES = {"x": 0, "y": 1, "z": 2}
_NOTHING = ("gpu.barrier", "ttg.barrier", "tt.assert", "tt.print")
_DESCRIBED = ("tt.make_tensor_descriptor", "tt.descriptor_load", "tt.descriptor_store", "tt.descriptor_reduce")


def _program_id(op: Op) -> Step:
    axis, (name,) = _AXES[op.words[0]], op.results
    of_grid = op.name == "tt.get_num_programs"

    def step(run: Run, values: Values) -> None:
        values[name] = torch.tensor((run.grid if of_grid else run.place)[axis], dtype=torch.int32)

    return step


def _load(op: Op) -> Step:
    _, element = form(op.result_types[0])
    kind, (name,) = dtype(element), op.results
    if op.operand_types and op.operand_types[0].startswith("!tt.ptr<tensor"):
        raise NotModelled("a pointer to a block")

    def step(run: Run, values: Values) -> None:
        values[name] = run.memory.load(values[op.operands[0]], kind, *(values[n] for n in op.operands[1:]))

    return step


def _store(op: Op) -> Step:
    if op.operand_types and op.operand_types[0].startswith("!tt.ptr<tensor"):
        raise NotModelled("a pointer to a block")
    return lambda run, values: run.memory.store(*[values[n] for n in op.operands])


_RMW: dict[str, Callable[[Any, Any], Any]] = {
    "add": torch.add, "fadd": torch.add, "and": torch.bitwise_and, "or": torch.bitwise_or, "xor": torch.bitwise_xor,
    "max": torch.maximum, "min": torch.minimum, "exch": lambda _old, new: new,
    "umax": lambda a, b: signed(np.maximum(unsigned(a), unsigned(b)), a.dtype),
    "umin": lambda a, b: signed(np.minimum(unsigned(a), unsigned(b)), a.dtype),
}  # fmt: skip


def _atomic(op: Op) -> Step:
    compute = _RMW.get(op.words[0])
    if compute is None:
        raise NotModelled(f"the atomic operation {op.words[0][:20]}")
    at, given, *mask = op.operands
    (name,) = op.results or ("",)

    def step(run: Run, values: Values) -> None:
        value = values[given]
        masked = values[mask[0]] if mask else None
        values[name] = run.memory.change(values[at], masked, value.dtype, [value], compute)

    return step


def _swap(op: Op) -> Step:
    at, wanted, new = op.operands

    def step(run: Run, values: Values) -> None:
        given = [values[wanted], values[new]]
        was = run.memory.change(
            values[at], None, given[1].dtype, given, lambda old, w, n: torch.where(old == w, n, old)
        )
        if op.results:
            values[op.results[0]] = was

    return step


def _descriptor(op: Op) -> Step:
    def step(run: Run, values: Values) -> None:
        given = [values[n] for n in op.operands]
        if op.name == "tt.make_tensor_descriptor":
            values[op.results[0]] = descriptors.make(op, given)
        elif op.name == "tt.descriptor_load":
            values[op.results[0]] = descriptors.load(op, run.memory, given)
        else:
            descriptors.store(op, run.memory, given)

    return step


def _assume(op: Op) -> Step:
    def step(_run: Run, values: Values) -> None:
        if not bool(values[op.operands[0]].all()):
            raise KernelFault("assumes what is not so (tl.assume)")

    return step


def _assembly(op: Op) -> Step:
    """The few lines of PTX that Triton writes itself: rounding to tf32, and waits of launches that may begin early."""
    listed = [t.text for t in tokens(str(op.parts[0])) if t.kind == "string"]
    compute = _PTX.get(listed[0].strip('"').partition(";")[0]) if listed else None
    if compute is None:
        raise NotModelled("inline assembly")

    def step(_run: Run, values: Values) -> None:
        values[op.results[0]] = compute(*[values[n] for n in op.operands])

    return step


def _to_tf32(x: Any) -> Any:
    """To the nearest, ties away from zero (PTX: cvt.rna.tf32.f32), with infinities and NaN as they are."""
    near = ((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)
    return torch.where(x.isfinite(), near, x)


def _zero(*_given: Any) -> Any:
    return torch.zeros((), dtype=torch.int32)


_PTX: dict[str, Callable[..., Any]] = {
    "cvt.rna.tf32.f32 $0, $1": _to_tf32,
    "griddepcontrol.wait": _zero,  # launches run one after another here
    "griddepcontrol.launch_dependents": _zero,
}


STEPS: dict[str, Callable[[Op], Step]] = {
    "tt.get_program_id": _program_id,
    "tt.get_num_programs": _program_id,
    "tt.load": _load,
    "tt.store": _store,
    "tt.atomic_rmw": _atomic,
    "tt.atomic_cas": _swap,
    "llvm.intr.assume": _assume,
    "tt.elementwise_inline_asm": _assembly,
    **dict.fromkeys(_DESCRIBED, _descriptor),
    **dict.fromkeys(_NOTHING, nothing),
}
