"""A recorded plan, executed on the CPU: torch operators as they stand, launches from their kernels' TTGIR.

No Python of a candidate runs here, as on a GPU. Blocks run in the order that is asked for.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any

import torch
from pgo_agent.sandbox.bundle.decode import flat
from pgo_agent.sandbox.bundle.schema import Address, Descriptor, Launch, Plan, Tensor
from pgo_agent.sandbox.bundle.validate import Bundle
from pgo_agent.sandbox.execution.descriptors import TensorDescriptor
from pgo_agent.sandbox.execution.errors import NotModelled
from pgo_agent.sandbox.execution.memory import Memory
from pgo_agent.sandbox.execution.program import Program
from pgo_agent.sandbox.execution.values import dtype
from pgo_agent.sandbox.judge.launches.plan_executor import Replay, blocks

Order = Callable[[int], Iterable[int]]  # number of blocks -> their order
MOST_BLOCKS = 1 << 16
FIRST, ALIGNED = 0x7F0000000000, 512  # the first address, and what all are multiples of (torch's allocator for CUDA)


class RecordedPlan(Replay):
    """A plan on inputs of its own."""

    def __init__(
        self,
        plan: Plan,
        inputs: dict[str, object],
        programs: Mapping[str, Program],
        order: Order,
        until: float,
        changed: Iterable[str] = (),
    ) -> None:
        """`programs`: kernels by their keys. `until` (time.monotonic): then a run ends with NotModelled."""
        self.programs, self.order, self.until = programs, order, until
        self.early = False  # whether copies are done as soon as may be, and not as late
        super().__init__(Bundle("", _NONE, _NONE, _NONE), plan, inputs, torch.device("cpu"), changed)
        kept = [i for i in self._given if self._at[i] is self._given[i]]
        self._given_bytes = {i: self._given[i][0].part(self._given[i][1]).clone() for i in kept}

    def _load(self, bundle: Bundle, key: str) -> Any:
        return self.programs[key]

    def _scratch_of(self, bundle: Bundle) -> Iterator[Any]:
        return iter(())

    def _launch(self, place: int, step: Launch) -> Callable[[], None]:
        return partial(self._run, step)

    def _run(self, step: Launch) -> None:
        number = blocks(step)
        if number > MOST_BLOCKS:
            raise NotModelled(f"a launch of {number} blocks")
        program = self.programs[step.kernel]
        given = list(_flat(step.signature, step.args))
        values = [v for kind, a in given if kind != "constexpr" for v in self._values(kind, a)]
        values = [_typed(v, t) for v, t in zip(values, program.parameters, strict=True)]
        program.run(self._memory(), step.grid, values, self.order(number), self.until, self.early)

    def _values(self, kind: str, a: Any) -> Iterator[Any]:
        if isinstance(a, Descriptor):
            yield TensorDescriptor(self._address_of(a.base), a.shape, a.strides, a.padding == "nan")
            yield from (*a.shape, *a.strides)
        elif isinstance(a, Tensor):
            yield self._address_of(a)
        else:
            yield 0 if a is None else self._argument(a, iter(()))

    def _address_of(self, t: Tensor) -> int:
        return self._addresses[t.storage] + t.offset * int(getattr(torch, t.dtype).itemsize)

    def _lies(self, a: Address) -> int:
        return self._addresses[a.storage] + a.byte

    @cached_property
    def _addresses(self) -> dict[int, int]:
        """Return where storages lie for kernels: at multiples of 512, as on a GPU, each behind a gap."""
        at, found = FIRST, dict[int, int]()
        for index, storage in enumerate(self.plan.storages):
            found[index] = at
            at += (storage.nbytes // ALIGNED + 2) * ALIGNED
        return found

    def _memory(self) -> Memory:
        names = {t.storage: f"the input {n}" for n, t in self.plan.inputs.items() if isinstance(t, Tensor)}
        return Memory([
            (self._addresses[i], arena.part(n), names.get(i, "a tensor of the launcher's"))
            for i, (arena, n) in self._at.items()
        ])  # fmt: skip

    def written(self) -> list[str]:
        """Return the inputs that are not as they were given, though the kernel may not change them."""
        return [
            name
            for name, planned in self.plan.inputs.items()
            if any(
                isinstance(t, Tensor) and t.storage in self._given_bytes
                and not torch.equal(self._at[t.storage][0].part(self._at[t.storage][1]), self._given_bytes[t.storage])
                for t in flat((planned,))
            )
        ]  # fmt: skip


_NONE: Any = MappingProxyType({})


def _flat(kinds: Any, args: Any) -> Iterator[tuple[str, Any]]:
    for kind, a in zip(kinds, args, strict=True):
        if isinstance(kind, tuple):
            yield from _flat(kind, a)
        else:
            yield str(kind), a


def _typed(value: Any, text: str) -> Any:
    """Return a scalar argument as the parameter's type has it."""
    if isinstance(value, TensorDescriptor):
        return value
    kind = torch.int64 if text.startswith("!tt.ptr") else dtype(text)
    if isinstance(value, int) and not kind.is_floating_point and kind != torch.bool:
        bits = 8 * kind.itemsize
        value = (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
    return torch.tensor(value, dtype=kind)
