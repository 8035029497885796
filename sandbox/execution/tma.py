"""Operations of TTGIR with TMA: copies between tensors and shared memory, reductions, descriptors that kernels make.

A load is done when somebody waits at its mbarrier, and completes its bytes there; a store, when it is waited for, or at
the end. Gathers and scatters are not modelled.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from pgo_agent.sandbox.execution import descriptors
from pgo_agent.sandbox.execution.descriptors import TensorDescriptor
from pgo_agent.sandbox.execution.elementwise import pointee_size
from pgo_agent.sandbox.execution.launch import Run, Step, Values, nothing
from pgo_agent.sandbox.ttgir.tree import Op

Tensor = Any  # a torch tensor


def _tma_load(op: Op) -> Step:
    described, *corner, buffer, barrier, wanted = op.operands

    def step(run: Run, values: Values) -> None:
        if not bool(values[wanted]):
            return
        into = values[buffer]
        at, inside = _reach(values[described], [values[c] for c in corner], into)
        other = values[described].other(into.dtype)
        loaded = run.memory.load(at, into.dtype, inside, other).reshape(into.shape)
        signalled = run.barrier(values[barrier])

        def load() -> None:
            into.copy_(loaded)
            signalled.complete(into.numel() * into.element_size())

        load() if run.early else signalled.loads.append(load)
        run.changed()

    return step


def _tma_store(op: Op) -> Step:
    described, *corner, buffer = op.operands

    def step(run: Run, values: Values) -> None:
        at, inside = _reach(values[described], [values[c] for c in corner], values[buffer])
        buffered = values[buffer]
        run.flying.stores.append(lambda: run.memory.store(at, buffered.reshape(at.shape).contiguous(), inside))

    return step


def _tma_reduce(op: Op) -> Step:
    compute = descriptors.reduction(op)
    described, *corner, buffer = op.operands

    def step(run: Run, values: Values) -> None:
        at, inside = _reach(values[described], [values[c] for c in corner], values[buffer])
        buffered = values[buffer]

        def change() -> None:
            given = buffered.reshape(at.shape).contiguous()
            run.memory.change(at, inside, given.dtype, [given], compute)

        run.flying.stores.append(change)

    return step


def _scratch(op: Op) -> Step:
    size = op.integer("nbytes") or 0

    def step(run: Run, values: Values) -> None:
        values[op.results[0]] = torch.tensor(run.scratch)
        run.scratch += size

    return step


def _tensormap(op: Op) -> Step:
    """Box, sizes and strides stand with the innermost first; strides, of all but that, are bytes."""
    size = pointee_size(op.operand_types[1])

    def step(run: Run, values: Values) -> None:
        slot, base, *numbers = (int(values[n]) for n in op.operands)
        rank = (len(numbers) + 1) // 4
        shape, strides = numbers[rank : 2 * rank], [n // size for n in numbers[2 * rank : 3 * rank - 1]]
        described = TensorDescriptor(base, tuple(shape[::-1]), (*strides[::-1], 1), op.integer("fill_mode") == 1)
        run.descriptors[slot] = described

    return step


def _described(op: Op) -> Step:
    def step(run: Run, values: Values) -> None:
        values[op.results[0]] = run.descriptors[int(values[op.operands[0]])]

    return step


def _reach(described: Any, corner: Sequence[Tensor], buffer: Tensor) -> tuple[Tensor, Tensor]:
    block = [1] * (len(corner) - buffer.dim()) + list(buffer.shape)
    at, inside = described.reach([int(c) for c in corner], block, buffer.element_size())
    return at, inside.expand(at.shape)


def _await_stores(op: Op) -> Step:
    left = op.integer("pendings") or 0
    return lambda run, _values: run.flying.wait_stores(left)


STEPS: dict[str, Callable[[Op], Step]] = {
    "ttng.async_tma_copy_global_to_local": _tma_load,
    "ttng.async_tma_copy_local_to_global": _tma_store,
    "ttng.async_tma_reduce": _tma_reduce,
    "ttg.global_scratch_alloc": _scratch,
    "ttng.tensormap_create": _tensormap,
    "ttng.reinterpret_tensor_descriptor": _described,
    "ttng.tensormap_fenceproxy_acquire": nothing,
    "ttng.async_tma_store_wait": _await_stores,
}
