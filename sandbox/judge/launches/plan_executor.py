"""Carries out a checked plan on the GPU: storages, torch ops from the list, launches through the driver.

Everything is allocated and packed once; a call then only enqueues. Every buffer that is not an input, scratch as well,
can be filled anew between calls, so that nothing that an earlier launch left behind can pass for a result. Buffers, and
copies of the inputs, lie between guard zones that tell of accesses outside. A launch of no blocks is none, as Triton's
own launcher has it. Plans without launches run on CPU tensors as well.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from pgo_agent.sandbox.bundle import elf
from pgo_agent.sandbox.bundle.decode import flat
from pgo_agent.sandbox.bundle.schema import Descriptor, Launch, Literal, OnDevice, Op, Plan, Tensor, TorchName
from pgo_agent.sandbox.bundle.validate import Bundle
from pgo_agent.sandbox.errors import BadBundle
from pgo_agent.sandbox.guard_zones import ZERO, Arena, Fill, arenas
from pgo_agent.sandbox.judge.launches import shared_memory
from pgo_agent.sandbox.judge.launches.cuda_driver import LoadedKernel, TensorMap


@dataclass(frozen=True)
class _Scratch:
    """What a launch needs beside its arguments."""

    step: int
    profile: bool  # the place of clock reads, or of what a kernel keeps for itself
    nbytes: int
    cleared: bool  # what counts on from what stands there: an instrumented twin, a sanitizer


class Replay:
    """A plan, ready to be launched again and again on its own buffers and the given inputs."""

    def __init__(self, bundle: Bundle, plan: Plan, inputs: dict[str, Any], device: Any) -> None:
        """Raises BadBundle when the inputs are not those that the plan was recorded for."""
        match_inputs(plan, inputs)
        self.plan, self.device = plan, device
        own = [i for i, s in enumerate(plan.storages) if s.kind == "input"]
        made = [i for i, s in enumerate(plan.storages) if s.kind != "input"]
        scratch = list(_scratch(bundle, plan))
        self._given = arenas([plan.storages[i].nbytes for i in own], device)
        self._made = arenas([plan.storages[i].nbytes for i in made] + [s.nbytes for s in scratch], device)
        self._at = dict(zip((*own, *made), (*self._given, *self._made), strict=False))
        self._scratch = dict(zip(((s.step, s.profile) for s in scratch), self._made[len(made) :], strict=True))
        self._cleared = [a.part(n) for s, (a, n) in zip(scratch, self._made[len(made) :], strict=True) if s.cleared]
        for index, storage in {t.storage: given.untyped_storage() for t, given in paired(plan, inputs)}.items():
            arena, n = self._at[index]
            arena.part(n).copy_(torch.empty(0, dtype=torch.uint8, device=device).set_(storage))
        self.kernels = {k: LoadedKernel(bundle.images[k], bundle.kernels[k]) for k in {s.kernel for s in plan.launches}}
        # step -> profile scratch of its launch, where it has some
        self.recorded = {step: a.part(n) for (step, profile), (a, n) in self._scratch.items() if profile}
        self._steps = [self._launch(i, s) if isinstance(s, Launch) else self._op(s) for i, s in enumerate(plan.steps)]
        self.outputs = [self.view(t) for t in plan.out]
        self.given = [arena.part(n) for arena, n in self._given]  # the bytes of the inputs

    def __call__(self, without: int | None = None) -> None:
        """Enqueues every step of the plan, or all but one."""
        for i, step in enumerate(self._steps):
            if i != without:
                step()

    def part(self, steps: range) -> None:
        """Enqueues some steps of the plan."""
        for i in steps:
            self._steps[i]()

    def poison(self, buffers: Fill, zones: Fill | None = None) -> None:
        """Fills every buffer that is not an input, and all guard zones, those by chance if nothing else is said."""
        zones = zones or Fill()
        self.wipe(buffers, zones)
        for arena in _each(self._given):
            arena.arm(zones)

    def wipe(self, buffers: Fill, zones: Fill | None = None) -> None:
        """As `poison`, but for the guard zones of the inputs, which hold what they were given before. Shared memory
        is overwritten, too."""
        for arena in _each(self._made):
            arena.fill(buffers, zones or Fill())
        for scratch in self._cleared:
            scratch.zero_()
        shared_memory.shared(self.device)

    def strays(self) -> Any:
        """Bytes of guard zones that were changed since they were filled; a count on the device, not waited for."""
        counts = [arena.strays() for arena in _each([*self._given, *self._made])]
        return torch.stack(counts).sum() if counts else torch.zeros((), dtype=torch.int64)

    def stray(self) -> int:
        """As `strays`, waited for."""
        return int(self.strays())

    def close(self) -> None:
        """Unloads the kernels and lets go of the memory, wiped."""
        self.wipe(ZERO, ZERO)
        for given in self.given:
            given.zero_()
        synchronize(self.device)
        for kernel in self.kernels.values():
            kernel.unload()
        self._steps, self.outputs, self.given, self._cleared, self.recorded = [], [], [], [], {}
        self._given, self._made, self._at, self._scratch = [], [], {}, {}

    def view(self, t: Tensor) -> Any:
        arena, n = self._at[t.storage]
        return arena.view(n, getattr(torch, t.dtype), t.size, t.stride, t.offset)

    # steps ------------------------------------------------------------------------------------------------------------

    def _launch(self, place: int, step: Launch) -> Callable[[], None]:
        if not blocks(step):
            return _nothing
        kernel = self.kernels[step.kernel]
        metas = iter(kernel.kernel.tensordesc_meta)
        args = [self._argument(a, metas) for a in step.args]
        scratch = self._address(place, False), self._address(place, True)
        stream = torch.cuda.current_stream().cuda_stream
        return kernel.prepare(step.grid, step.signature, args, scratch, stream)

    def _address(self, place: int, profile: bool) -> int:
        if (place, profile) not in self._scratch:
            return 0
        arena, n = self._scratch[place, profile]
        return int(arena.part(n).data_ptr())

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


def blocks(step: Launch) -> int:
    """How many a launch has."""
    return step.grid[0] * step.grid[1] * step.grid[2]


def _nothing() -> None:
    """A launch of no blocks."""


def _scratch(bundle: Bundle, plan: Plan) -> Iterator[_Scratch]:
    for place, step in enumerate(plan.steps):
        if isinstance(step, Launch) and blocks(step):
            k = bundle.kernels[step.kernel]
            count = blocks(step) * k.num_ctas
            if k.global_scratch_size:
                sanitized = elf.keeps_state(bundle.images[step.kernel])
                yield _Scratch(place, False, count * k.global_scratch_size, sanitized)
            if k.profile_scratch_size:
                yield _Scratch(place, True, count * k.profile_scratch_size, True)


def _each(places: list[tuple[Arena, int]]) -> list[Arena]:
    return list(dict.fromkeys(arena for arena, _ in places))


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
