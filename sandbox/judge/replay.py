"""Carries out a checked plan on the GPU: storages, torch ops from the list, launches through the driver.

Everything is allocated and packed once; a call then only enqueues. Every buffer that is not an input can be poisoned
between calls, so that nothing that an earlier launch left behind can pass for a result. Every buffer, and a copy of
every input, lies between guard zones that tell of writes outside. Plans without launches run on CPU tensors as well.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from pgo_agent.sandbox.bundle.check import Bundle
from pgo_agent.sandbox.bundle.grammar import flat
from pgo_agent.sandbox.bundle.schema import Descriptor, Launch, Literal, OnDevice, Op, Plan, Tensor, TorchName
from pgo_agent.sandbox.errors import BadBundle
from pgo_agent.sandbox.guards import Guarded
from pgo_agent.sandbox.judge.driver import LoadedKernel, TensorMap

NAN, LARGE = 0xFF, 0x7B  # bytes: NaN in every float type; a large finite number in every float type


class Replay:
    """A plan, ready to be launched again and again on its own buffers and the given inputs."""

    def __init__(self, bundle: Bundle, plan: Plan, inputs: dict[str, Any], device: Any) -> None:
        """Raises BadBundle when the inputs are not those that the plan was recorded for."""
        match_inputs(plan, inputs)
        self.plan, self.device = plan, device
        self._storages = [Guarded(s.nbytes, device) for s in plan.storages]
        for index, storage in {t.storage: given.untyped_storage() for t, given in paired(plan, inputs)}.items():
            self._storages[index].bytes.copy_(torch.empty(0, dtype=torch.uint8, device=device).set_(storage))
        self.kernels = {k: LoadedKernel(bundle.images[k], bundle.kernels[k]) for k in {s.kernel for s in plan.launches}}
        self._scratch: list[Any] = []
        self.recorded: dict[int, Any] = {}  # step -> profile scratch of its launch, where it has some
        self._steps = [self._launch(i, s) if isinstance(s, Launch) else self._op(s) for i, s in enumerate(plan.steps)]
        self.outputs = [self.view(t) for t in plan.out]

    def __call__(self, without: int | None = None) -> None:
        """Enqueues every step of the plan, or all but one."""
        for i, step in enumerate(self._steps):
            if i != without:
                step()

    def part(self, steps: range) -> None:
        """Enqueues some steps of the plan."""
        for i in steps:
            self._steps[i]()

    def poison(self, pattern: int) -> None:
        """Fills every buffer that is not an input, and all guard zones, with a byte, and clears scratch."""
        for planned, guarded in zip(self.plan.storages, self._storages, strict=True):
            if planned.kind == "input":
                guarded.arm(pattern)
            else:
                guarded.fill(pattern)
        for scratch in self._scratch:
            scratch.zero_()

    def stray(self) -> int:
        """Bytes outside of all buffers that were changed since the last `poison`."""
        return sum(s.stray() for s in self._storages)

    def close(self) -> None:
        """Unloads the kernels and lets go of the memory, wiped."""
        self.poison(0)
        synchronize(self.device)
        for kernel in self.kernels.values():
            kernel.unload()
        self._steps, self._storages, self.outputs, self._scratch, self.recorded = [], [], [], [], {}

    def view(self, t: Tensor) -> Any:
        return self._storages[t.storage].view(getattr(torch, t.dtype), t.size, t.stride, t.offset)

    # steps ------------------------------------------------------------------------------------------------------------

    def _launch(self, place: int, step: Launch) -> Callable[[], None]:
        kernel = self.kernels[step.kernel]
        metas = iter(kernel.kernel.tensordesc_meta)
        args = [self._argument(a, metas) for a in step.args]
        k, blocks = kernel.kernel, step.grid[0] * step.grid[1] * step.grid[2] * kernel.kernel.num_ctas
        scratch = self._room(blocks * k.global_scratch_size), self._room(blocks * k.profile_scratch_size)
        if k.profile_scratch_size:
            self.recorded[place] = self._scratch[-1]
        stream = torch.cuda.current_stream().cuda_stream
        return kernel.prepare(step.grid, step.signature, args, scratch, stream)

    def _room(self, nbytes: int) -> int:
        if not nbytes:
            return 0
        self._scratch.append(torch.zeros(nbytes, dtype=torch.uint8, device=self.device))
        return int(self._scratch[-1].data_ptr())

    def _argument(self, a: Any, metas: Iterator[dict[str, Any]]) -> Any:
        if isinstance(a, tuple):
            return tuple(self._argument(x, metas) for x in a)
        if isinstance(a, Tensor):
            return self.view(a).data_ptr()
        if isinstance(a, Descriptor):
            pointer = self.view(a.base).data_ptr()
            return TensorMap(pointer, a.shape, a.strides, a.padding == "nan", a.tf32, next(metas))
        return a

    def _op(self, step: Op) -> Callable[[], None]:
        args = [self._value(a) for a in step.args]
        kwargs = {k: self._value(v) for k, v in step.kwargs.items()}
        outs = [self.view(t) for t in step.out]
        name = step.name.removeprefix("aten.")
        fill = _FILLS.get(name)
        if fill is not None:
            return partial(outs[0].fill_, fill(args))
        packet, overload = name.split(".")
        op = getattr(getattr(torch.ops.aten, packet), overload)
        if op._schema.is_mutable:
            return partial(op, *args, **kwargs)

        def into() -> None:
            outs[0].copy_(op(*args, **kwargs))

        return into

    def _value(self, a: Any) -> Any:
        if isinstance(a, tuple):
            return [self._value(x) for x in a]
        if isinstance(a, Tensor):
            return self.view(a)
        if isinstance(a, Literal):
            return torch.tensor(a.values, dtype=getattr(torch, a.dtype), device=self.device).reshape(a.size)
        if isinstance(a, OnDevice):
            return self.device
        return getattr(torch, a.name) if isinstance(a, TorchName) else a


def synchronize(device: Any) -> None:
    """Waits until all that was enqueued has ended. Raises RuntimeError when a launch faulted."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


# Ops that only fill a fresh tensor write into the plan's buffer directly, as the original's memset would.
_FILLS: dict[str, Callable[[list[Any]], Any]] = {
    "zeros.default": lambda a: 0,
    "zeros_like.default": lambda a: 0,
    "new_zeros.default": lambda a: 0,
    "ones.default": lambda a: 1,
    "ones_like.default": lambda a: 1,
    "full.default": lambda a: a[1],
    "full_like.default": lambda a: a[1],
    "new_full.default": lambda a: a[2],
}


def match_inputs(plan: Plan, inputs: dict[str, Any]) -> None:
    """Whether these are the inputs that the plan was recorded for: names, scalars, shapes, strides, aliasing."""
    if set(plan.inputs) != set(inputs):
        raise BadBundle(f"the plan takes {sorted(plan.inputs)}, inputs() gave {sorted(inputs)}")
    for name, planned in plan.inputs.items():
        given = inputs[name]
        fine = _same_tensor(planned, given, plan) if isinstance(given, torch.Tensor) else _equal(_plain(given), planned)
        if not fine:
            raise BadBundle(f"input '{name}' is not what the plan was recorded for")
    shared: dict[int, int] = {}
    for t, given in paired(plan, inputs):
        if shared.setdefault(t.storage, given.untyped_storage().data_ptr()) != given.untyped_storage().data_ptr():
            raise BadBundle("inputs share storage in the plan, but inputs() gave separate tensors")


def paired(plan: Plan, inputs: dict[str, Any]) -> Iterator[tuple[Tensor, Any]]:
    """The plan's input tensors, each with the one that was given for it."""
    for name, planned in plan.inputs.items():
        given = inputs[name]
        ours = given if isinstance(given, list | tuple) else (given,)
        yield from ((t, g) for t, g in zip(flat(planned), ours, strict=False) if isinstance(t, Tensor))


def _equal(given: Any, planned: Any) -> bool:
    both_nan = isinstance(given, float) and isinstance(planned, float) and given != given and planned != planned
    return both_nan or given == planned


def _same_tensor(planned: Any, given: Any, plan: Plan) -> bool:
    return (
        isinstance(planned, Tensor)
        and planned.dtype == str(given.dtype)[6:]
        and planned.size == tuple(given.shape)
        and planned.stride == tuple(given.stride())
        and planned.offset == given.storage_offset()
        and plan.storages[planned.storage].nbytes == given.untyped_storage().nbytes()
    )


def _plain(given: Any) -> Any:
    if isinstance(given, list | tuple):
        return tuple(_plain(g) for g in given)
    return TorchName(str(given)[6:]) if isinstance(given, torch.dtype) else given
