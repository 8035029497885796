"""Operations of TTGIR on shared memory: buffers, asynchronous copies and dots, mbarriers, and partitions of warps.

A buffer is a tensor whose views share its memory; what nothing wrote there is NaN or -1. Copies and dots are done as
late as may be, when somebody waits for them: what needs them and does not wait finds NaN, or what was there before. In
an early run copies are done at once, and partitions run ahead: what is overwritten too early is gone for a dot.
Partitions run in threads, one at a time, and change over where one waits at an mbarrier. Where all wait, and none of
them for what has come, the kernel hangs. Layouts say nothing here.
"""

import re
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from pgo_agent.sandbox.execution import tensors
from pgo_agent.sandbox.execution.errors import KernelFault, NotModelled
from pgo_agent.sandbox.execution.launch import Barrier, Dot, End, Flying, Run, Step, Values, Waiting, nothing
from pgo_agent.sandbox.execution.values import dtype, form, unwritten
from pgo_agent.sandbox.ttgir.tree import Op

Tensor = Any  # a torch tensor
_PRECISION = ("tf32", "tf32x3", "ieee")  # Triton's InputPrecision


def _alloc(op: Op) -> Step:
    shape, element = form(op.result_types[0])
    kind, (name,) = dtype(element), op.results

    def step(_run: Run, values: Values) -> None:
        if op.operands:
            values[name] = values[op.operands[0]].reshape(shape).clone(memory_format=torch.contiguous_format)
        else:
            values[name] = unwritten(shape, kind)

    return step


def _index(op: Op) -> Step:
    buffer, index = op.operands

    def step(_run: Run, values: Values) -> None:
        ring, place = values[buffer], int(values[index])
        if not 0 <= place < ring.shape[0]:
            raise KernelFault(f"takes place {place} of a ring of {ring.shape[0]} in shared memory")
        values[op.results[0]] = ring[place]

    return step


def _subslice(op: Op) -> Step:
    head = str(op.parts[0]).partition("[")[2].partition("]")[0]
    if not re.fullmatch(r"[\d, ]+", head):
        raise NotModelled("a slice of shared memory without fixed offsets")
    offsets = [int(n) for n in head.split(",")]
    shape, _ = form(op.result_types[0])

    def step(_run: Run, values: Values) -> None:
        view = values[op.operands[0]]
        for axis, (offset, n) in enumerate(zip(offsets, shape, strict=True)):
            view = view.narrow(axis, offset, n)
        values[op.results[0]] = view

    return step


def _trans(op: Op) -> Step:
    order = tensors.order_of(op)

    def step(_run: Run, values: Values) -> None:
        values[op.results[0]] = values[op.operands[0]].permute(order)

    return step


def _reshape(op: Op) -> Step:
    shape, _ = form(op.result_types[0])

    def step(_run: Run, values: Values) -> None:
        values[op.results[0]] = values[op.operands[0]].view(shape)

    return step


def _load(op: Op) -> Step:
    def step(_run: Run, values: Values) -> None:
        values[op.results[0]] = values[op.operands[0]].clone()

    return step


def _store(op: Op) -> Step:
    value, buffer = op.operands

    def step(_run: Run, values: Values) -> None:
        values[buffer].copy_(values[value])

    return step


def _copy(op: Op) -> Step:
    """Triton fills masked-off lanes with zero where there is no `other` (cp.async copies no bytes)."""
    at, buffer, *more = op.operands
    words = [w for w in op.words if w in ("mask", "other")]
    named = dict(zip(words, more, strict=False))

    def step(run: Run, values: Values) -> None:
        mask, other = (values[named[w]] if w in named else None for w in ("mask", "other"))
        into = values[buffer]
        other = torch.zeros((), dtype=torch.float32).to(into.dtype) if other is None else other
        copied = run.memory.load(values[at], into.dtype, mask, other).reshape(into.shape)
        copy = partial(into.copy_, copied)
        copy() if run.early else run.flying.copies.append(copy)
        values.update(dict.fromkeys(op.results))

    return step


def _dot(op: Op) -> Step:
    a, b, c, *use = op.operands
    number = op.integer("inputPrecision")
    multiply = tensors.product(_PRECISION[number] if number is not None and number < 3 else "tf32")
    asynchronous = bool(op.integer("isAsync"))

    def step(run: Run, values: Values) -> None:
        added = values[c]
        fresh = bool(use) and not bool(values[use[0]])
        left, right = values[a], values[b]

        def compute() -> Tensor:
            begun = added.value if isinstance(added, Dot) else added
            return multiply(left, right, torch.zeros_like(begun) if fresh else begun)

        begun = Dot(compute)
        run.flying.dots.append(begun)
        if not asynchronous:
            run.flying.wait_dots(0)
        values[op.results[0]] = begun if asynchronous else begun.value

    return step


def _await_dots(op: Op) -> Step:
    left = op.integer("pendings") or 0

    def step(run: Run, values: Values) -> None:
        run.flying.wait_dots(left)
        for name, operand in zip(op.results, op.operands, strict=True):
            given = values[operand]
            values[name] = given.value if isinstance(given, Dot) and given.value is not None else given

    return step


def _commit(op: Op) -> Step:
    def step(run: Run, values: Values) -> None:
        run.flying.groups.append(run.flying.copies[:])
        run.flying.copies.clear()
        values.update(dict.fromkeys(op.results))

    return step


def _await_copies(op: Op) -> Step:
    left = op.integer("num") or 0

    def step(run: Run, values: Values) -> None:
        run.flying.wait_copies(left)
        values.update(dict.fromkeys(op.results))

    return step


def _passes(op: Op) -> Step:
    """Layouts say nothing here."""

    def step(_run: Run, values: Values) -> None:
        values[op.results[0]] = values[op.operands[0]]

    return step


# mbarriers ------------------------------------------------------------------------------------------------------------


def _init(op: Op) -> Step:
    count = int(op.words[-1])

    def step(run: Run, values: Values) -> None:
        run.barriers[values[op.operands[0]].data_ptr()] = Barrier(count, count)

    return step


def _counts(count: Callable[[Barrier, int], None]) -> Callable[[Op], Step]:
    """Return what arrives at a barrier: with a number, where its predicate is set."""

    def make(op: Op) -> Step:
        number = int(op.words[-1])

        def step(run: Run, values: Values) -> None:
            if len(op.operands) < 2 or bool(values[op.operands[-1]]):
                count(run.barrier(values[op.operands[0]]), number)
                run.changed()
                if count is Barrier.arrive:
                    run.pass_turn()

        return step

    return make


def _wait(op: Op) -> Step:
    barrier, phase, *more = op.operands

    def step(run: Run, values: Values) -> None:
        if more and values[more[0]] is not None and values[more[0]].dtype == torch.bool and not bool(values[more[0]]):
            return
        run.wait(Waiting(run.barrier(values[barrier]), int(values[phase]) & 1))

    return step


def _specialize(op: Op) -> Step:
    default, *partitions = op.regions

    def step(run: Run, values: Values) -> None:
        given = [values[n] for n in op.operands]
        inner = [(default.blocks[0], dict(values))]
        for region in partitions:
            block = region.blocks[0]
            inner.append((block, dict(zip([a.name for a in block.arguments], given, strict=True))))
        flying = [run.flying, *(Flying() for _ in partitions)]
        ended: list[End | None] = [None] * len(inner)
        raised: list[BaseException] = []

        def work(number: int) -> None:
            with run.turns:
                run.flying = flying[number]
                try:
                    ended[number] = run.ops(*inner[number])
                except BaseException as e:
                    raised.append(e)
                    run.stopped = True
                run.alive -= 1
                run.turns.notify_all()

        run.alive = len(inner)
        threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(len(inner))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        run.alive, run.flying = 1, flying[0]
        for one in flying[1:]:
            one.wait_stores(0)
        if raised:
            raise raised[0]  # others were stopped by it
        values.update(zip(op.results, ended[0].values if ended[0] else (), strict=True))

    return step


_SILENT = (
    *("ttg.local_dealloc", "ttng.fence_async_shared", "ttng.inval_barrier"),
    *("ttng.fence_mbarrier_init_release_cluster", "nvvm.fence.proxy"),
)
STEPS: dict[str, Callable[[Op], Step]] = {
    "ttg.local_alloc": _alloc,
    "ttg.memdesc_index": _index,
    "ttg.memdesc_subslice": _subslice,
    "ttg.memdesc_trans": _trans,
    "ttg.memdesc_reshape": _reshape,
    "ttg.local_load": _load,
    "ttg.local_store": _store,
    "ttg.async_copy_global_to_local": _copy,
    "ttg.convert_layout": _passes,
    "ttg.async_commit_group": _commit,
    "ttg.async_wait": _await_copies,
    "ttng.warp_group_dot": _dot,
    "ttng.warp_group_dot_wait": _await_dots,
    "ttng.init_barrier": _init,
    "ttng.barrier_expect": _counts(Barrier.expect),
    "ttng.arrive_barrier": _counts(Barrier.arrive),
    "ttng.wait_barrier": _wait,
    "ttg.warp_specialize": _specialize,
    **dict.fromkeys(_SILENT, nothing),
}
