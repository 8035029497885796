"""Executes a checked plan on the GPU: storages, torch ops from the list, launches through the driver.

Everything is allocated and packed once; a call then only enqueues. Every buffer but the inputs, scratch included, can
be refilled between calls, so that leftovers of an earlier launch cannot pass for a result. Inputs that the kernel
changes are such buffers, too: every refill gives them their values again, from a copy that must stay as it is, and no
step runs twice without that. A torch op's result stays where the op made it, as in PyTorch, where no launch is given
its address; else it is copied to the plan's place for it. Buffers and copies of the inputs lie between guard zones,
which show accesses outside. A launch of no blocks is skipped, as in Triton's launcher. Plans without launches also run
on CPU tensors.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from pgo_agent.sandbox.bundle import elf
from pgo_agent.sandbox.bundle.decode import flat
from pgo_agent.sandbox.bundle.schema import (
    Address,
    Descriptor,
    Launch,
    Literal,
    OnDevice,
    Op,
    Plan,
    Tensor,
    TmaMeta,
    TorchName,
)
from pgo_agent.sandbox.bundle.validate import Bundle
from pgo_agent.sandbox.guard_zones import PATTERN, ZERO, Arena, Fill, arenas
from pgo_agent.sandbox.judge.launches import shared_memory
from pgo_agent.sandbox.judge.launches.cuda_driver import LoadedKernel, TensorMap
from pgo_agent.sandbox.judge.launches.planned_inputs import match_inputs, paired
from pgo_agent.sandbox.judge.launches.torch_results import FILLS, held_by_torch


@dataclass(frozen=True)
class _Scratch:
    """Memory that a launch needs besides its arguments."""

    step: int
    profile: bool  # for clock reads; else for the kernel's own use
    nbytes: int
    cleared: bool  # for code that counts on from there: instrumented builds, sanitizers


class Replay:
    """A plan, ready to be launched many times on its own buffers and copies of the inputs."""

    def __init__(
        self, bundle: Bundle, plan: Plan, inputs: dict[str, object], device: Any, changed: Iterable[str] = ()
    ) -> None:
        """`changed`: the inputs that the kernel changes. Raises BadBundle when the inputs are not those that the plan
        was recorded for."""
        match_inputs(plan, inputs)
        self.plan, self.device = plan, device
        working = {t.storage for n in changed for t in flat((plan.inputs[n],)) if isinstance(t, Tensor)}
        input_indices = [i for i, s in enumerate(plan.storages) if s.kind == "input"]
        other_indices = [i for i, s in enumerate(plan.storages) if s.kind != "input" or i in working]
        scratch = list(self._scratch_of(bundle))
        self._input_arenas = arenas([plan.storages[i].nbytes for i in input_indices], device)
        self._other_arenas = arenas(
            [plan.storages[i].nbytes for i in other_indices] + [s.nbytes for s in scratch], device
        )
        given = dict(zip(input_indices, self._input_arenas, strict=True))
        self._at = given | dict(zip(other_indices, self._other_arenas, strict=False))
        self._scratch = dict(
            zip(((s.step, s.profile) for s in scratch), self._other_arenas[len(other_indices) :], strict=True)
        )
        self._cleared = [
            a.part(n) for s, (a, n) in zip(scratch, self._other_arenas[len(other_indices) :], strict=True) if s.cleared
        ]
        for index, storage in {t.storage: tensor.untyped_storage() for t, tensor in paired(plan, inputs)}.items():
            arena, n = given[index]
            arena.part(n).copy_(torch.empty(0, dtype=torch.uint8, device=device).set_(storage))
        self._restored = [(_part(self._at[i]), _part(given[i])) for i in working]  # what is changed, and from what
        self._given = given
        self._ran = set[int]()  # steps since the last refill
        self._fresh = held_by_torch(plan)  # storages of results that stay where an operator made them
        self._made = dict[int, Any]()  # of these, the result of the last call
        self.kernels = {k: self._load(bundle, k) for k in {s.kernel for s in plan.launches}}
        # step -> profile scratch of its launch, where it has some
        self.recorded = {step: a.part(n) for (step, profile), (a, n) in self._scratch.items() if profile}
        self._steps = [self._launch(i, s) if isinstance(s, Launch) else self._op(s) for i, s in enumerate(plan.steps)]
        self.given = [arena.part(n) for arena, n in self._input_arenas]  # the bytes of the inputs, as they were given
        self.restore()

    def __call__(self, without: int | None = None) -> None:
        """Enqueue every step of the plan, or all but step `without`. Raises RuntimeError as `part`."""
        self._begin(range(len(self._steps)))
        for i, step in enumerate(self._steps):
            if i != without:
                step()

    def part(self, steps: range) -> None:
        """Enqueue some steps of the plan. Raises RuntimeError for one that ran before on inputs that it changes."""
        self._begin(steps)
        for i in steps:
            self._steps[i]()

    def poison(self, buffers: Fill, zones: Fill | None = None) -> None:
        """Fill every buffer that is not an input, and all guard zones (by default with random bytes)."""
        zones = zones or Fill()
        self.wipe(buffers, zones)
        for arena in _each(self._input_arenas):
            arena.arm(zones)

    def wipe(self, buffers: Fill, zones: Fill | None = None) -> None:
        """As `poison`, without the guard zones of the inputs. Also overwrites shared memory."""
        self._refill(buffers, zones or Fill())
        self.restore()

    def blank(self) -> None:
        """Overwrite the results, and leave every other buffer as the last call left it: a caching allocator gives a
        program the same memory again."""
        for output in (
            o for o in self.outputs if not any(s == 0 < n - 1 for n, s in zip(o.shape, o.stride(), strict=True))
        ):
            held = torch.full((output.numel() * output.element_size(),), PATTERN, dtype=torch.uint8, device=self.device)
            output.copy_(held.view(output.dtype).view(output.shape))
        self.restore()

    def restore(self) -> None:
        """Give the inputs that the kernel changes their values again, and leave all else as it is."""
        for working, given in self._restored:
            working.copy_(given)
        self._ran.clear()

    def strays(self) -> Any:
        """Return the number of changed bytes in guard zones, as a tensor on the device, without waiting."""
        counts = [arena.strays() for arena in _each([*self._input_arenas, *self._other_arenas])]
        return torch.stack(counts).sum() if counts else torch.zeros((), dtype=torch.int64)

    def stray(self) -> int:
        """As `strays`, as a number, after waiting."""
        return int(self.strays())

    def close(self) -> None:
        """Unload the kernels, wipe the memory and free it."""
        made_by_torch = list(self._made.values())
        self._refill(ZERO, ZERO)
        for buffer in self.given:
            buffer.zero_()
        for made in made_by_torch:
            torch.empty(0, dtype=torch.uint8, device=self.device).set_(made).zero_()
        synchronize(self.device)
        for kernel in self.kernels.values():
            kernel.unload()
        self._steps, self.given, self._cleared, self.recorded, self._made = [], [], [], {}, {}
        self._input_arenas, self._other_arenas, self._at, self._scratch = [], [], {}, {}
        self._restored, self._given = [], {}

    @property
    def outputs(self) -> list[Any]:
        """What the last call returned."""
        return [self.view(t) for t in self.plan.out]

    def view(self, t: Tensor) -> Any:
        """Return a tensor of the plan, in the memory that its steps work on."""
        if made := self._made.get(t.storage):
            return torch.empty(0, dtype=getattr(torch, t.dtype), device=self.device).set_(
                made, t.offset, t.size, t.stride
            )
        return _view(self._at[t.storage], t)

    def as_given(self, t: Tensor) -> Any:
        """Return an input as it must stay: of one that the kernel changes the copy that it is restored from."""
        return _view(self._given[t.storage], t)

    def _begin(self, steps: range) -> None:
        if self._restored:
            if not self._ran.isdisjoint(steps):
                raise RuntimeError("launched twice on inputs that it changes, without a refill between")
            self._ran.update(steps)

    def _refill(self, buffers: Fill, zones: Fill) -> None:
        for arena in _each(self._other_arenas):
            arena.fill(buffers, zones)
        for scratch in self._cleared:
            scratch.zero_()
        self._made.clear()
        shared_memory.shared(self.device)

    # steps ------------------------------------------------------------------------------------------------------------

    def _load(self, bundle: Bundle, key: str) -> Any:
        """Return what launches a kernel."""
        return LoadedKernel(bundle.images[key], bundle.kernels[key])

    def _scratch_of(self, bundle: Bundle) -> Iterator[_Scratch]:
        """Yield the memory that launches need besides their arguments."""
        return _scratch(bundle, self.plan)

    def _launch(self, place: int, step: Launch) -> Callable[[], None]:
        if not blocks(step):
            return _nothing
        kernel = self.kernels[step.kernel]
        metas = iter(kernel.kernel.tensordesc_meta)
        args = [self._argument(a, metas) for a in step.args]
        scratch = self._address(place, False), self._address(place, True)
        stream = torch.cuda.current_stream().cuda_stream
        prepared: Callable[[], None] = kernel.prepare(step.grid, step.signature, args, scratch, stream)
        return prepared

    def _address(self, place: int, profile: bool) -> int:
        if (place, profile) not in self._scratch:
            return 0
        arena, n = self._scratch[place, profile]
        return int(arena.part(n).data_ptr())

    def _argument(self, a: Any, metas: Iterator[TmaMeta]) -> Any:
        if isinstance(a, tuple):
            return tuple(self._argument(x, metas) for x in a)
        if isinstance(a, Tensor):
            return self.view(a).data_ptr()
        if isinstance(a, Address):
            return self._lies(a)
        if isinstance(a, Descriptor):
            pointer = self.view(a.base).data_ptr()
            return TensorMap(pointer, a.shape, a.strides, a.padding == "nan", a.tf32, next(metas))
        return a

    def _lies(self, a: Address) -> int:
        arena, n = self._at[a.storage]
        return int(arena.part(n).data_ptr()) + a.byte

    def _op(self, step: Op) -> Callable[[], None]:
        name = step.name.removeprefix("aten.")
        if name in FILLS:
            return partial(self.view(step.out[0]).fill_, FILLS[name]([self._value(a) for a in step.args]))
        packet, overload = name.split(".")
        op = getattr(getattr(torch.ops.aten, packet), overload)
        given = self._given_to(step)
        if op._schema.is_mutable:
            return lambda: op(*given()[0], **given()[1])

        def made() -> None:
            args, kwargs = given()
            results = op(*args, **kwargs)
            listed = results if isinstance(results, tuple | list) else (results,)
            tensors = (r for r in listed if isinstance(r, torch.Tensor))
            for planned, result in zip(step.out, tensors, strict=True):
                self._keep(planned, result)

        return made

    def _given_to(self, step: Op) -> Callable[[], tuple[list[Any], dict[str, Any]]]:
        """Return what makes the arguments of an op: before each call, where some are results of other ops."""

        def values() -> tuple[list[Any], dict[str, Any]]:
            return [self._value(a) for a in step.args], {k: self._value(v) for k, v in step.kwargs.items()}

        leaves = flat((step.args, tuple(step.kwargs.values())))
        if any(isinstance(a, Tensor) and a.storage in self._fresh for a in leaves):
            return values
        once = values()
        return lambda: once

    def _keep(self, planned: Tensor, result: Any) -> None:
        """Take an op's result for a tensor of the plan."""
        self._made.pop(planned.storage, None)
        same = (tuple(result.shape), result.stride(), result.storage_offset()) == (planned.size, planned.stride, 0)
        storage = result.untyped_storage()
        enough = storage.nbytes() >= self.plan.storages[planned.storage].nbytes
        if planned.storage in self._fresh and same and enough and str(result.dtype)[6:] == planned.dtype:
            self._made[planned.storage] = storage
        else:
            self.view(planned).copy_(result)

    def _value(self, a: Any) -> Any:
        if isinstance(a, tuple):
            return [self._value(x) for x in a]
        if isinstance(a, Tensor):
            return self.view(a)
        if isinstance(a, Address):
            return self._lies(a)
        if isinstance(a, Literal):
            values = [self._value(v) for v in a.values]
            return torch.tensor(values, dtype=getattr(torch, a.dtype), device=self.device).reshape(a.size)
        if isinstance(a, OnDevice):
            return self.device
        return getattr(torch, a.name) if isinstance(a, TorchName) else a


def blocks(step: Launch) -> int:
    """Return the number of blocks of a launch."""
    return step.grid[0] * step.grid[1] * step.grid[2]


def _nothing() -> None:
    """Launch no blocks."""


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


def _part(place: tuple[Arena, int]) -> Any:
    arena, n = place
    return arena.part(n)


def _view(place: tuple[Arena, int], t: Tensor) -> Any:
    arena, n = place
    return arena.view(n, getattr(torch, t.dtype), t.size, t.stride, t.offset)


def synchronize(device: Any) -> None:
    """Wait until all enqueued work has ended. Raises RuntimeError when a launch failed."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
