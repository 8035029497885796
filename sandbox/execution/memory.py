"""The buffers that a launch may access, by addresses that nobody else knows; none outside of them is ever touched.

A lane outside of every buffer, or not aligned to its element, is a fault. So are two lanes of one store that write
different values to one place: nothing says which of them stays. A masked-off lane without `other` is NaN or -1. Atomics
of one operation are done lane by lane, in order.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from pgo_agent.sandbox.execution.errors import KernelFault
from pgo_agent.sandbox.execution.values import FP8, unwritten

Tensor = Any  # a torch tensor
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Memory:
    """Bytes by address."""

    def __init__(self, buffers: Sequence[tuple[int, Tensor, str]]) -> None:
        """`buffers`: addresses that do not overlap, their bytes (uint8, contiguous), and what a fault calls them."""
        held = sorted((b for b in buffers if b[1].numel()), key=lambda b: b[0])
        self._starts = [start for start, _, _ in held]
        self._bytes = [b for _, b, _ in held]
        self._names = [name for _, _, name in held]
        self._block, self._followed = 0, False
        self._writers: dict[int, Tensor] = {}  # buffer -> of each byte the block that wrote an element there, from 1
        self._readers: dict[int, Tensor] = {}

    def launch(self, followed: bool) -> None:
        """Begin a launch. `followed`: its blocks have no atomics, so none may touch what another one writes."""
        self._followed = followed
        self._writers.clear()
        self._readers.clear()

    def begin(self, block: int) -> None:
        """Begin a block of the launch."""
        self._block = block + 1

    def load(self, at: Tensor, kind: torch.dtype, mask: Tensor | None = None, other: Tensor | None = None) -> Tensor:
        """Return what lies at addresses, and `other` where the mask is not set."""
        size = 1 if kind == torch.bool else kind.itemsize
        at, mask, other = _together(at, mask, other)
        found = _as_bits(unwritten(at.shape, kind))
        if other is not None:
            found.copy_(_as_bits(other))
        flat = found.view(-1)
        for lanes, cells, index in self._cells(at, mask, size, "reads"):
            values = cells.index_select(0, index)
            if lanes is None:
                flat.copy_(values)
            else:
                flat[lanes] = values
        return (found != 0) if kind == torch.bool else found.view(kind)

    def store(self, at: Tensor, value: Tensor, mask: Tensor | None = None) -> None:
        """Write values to addresses, where the mask is set."""
        at, mask, value = _together(at, mask, value)
        bits = _as_bits(value).reshape(-1)
        for lanes, cells, index in self._cells(at, mask, bits.element_size(), "writes"):
            given = bits if lanes is None else bits[lanes]
            cells[index] = given
            if index.numel() > 1 and not torch.equal(cells.index_select(0, index), given):
                raise KernelFault("writes different values to one place, by two lanes of one store")

    def change(
        self,
        at: Tensor,
        mask: Tensor | None,
        kind: torch.dtype,
        given: Sequence[Tensor],
        compute: Callable[..., Tensor],
    ) -> Tensor:
        """Put compute(old, *given) in place of what lies at addresses, lane by lane; return what was there."""
        size = kind.itemsize
        shape = torch.broadcast_shapes(at.shape, *(g.shape for g in given))
        at = at.expand(shape)
        mask = None if mask is None else mask.expand(shape)
        values = [g.expand(shape).reshape(-1) for g in given]
        before = torch.zeros(shape, dtype=kind)
        flat = before.view(-1)
        for lanes, cells, index in self._cells(at, mask, size, "changes"):
            mine = [v if lanes is None else v[lanes] for v in values]
            where = range(index.numel()) if lanes is None else lanes.tolist()
            numbers = cells.view(kind)
            if index.unique().numel() == index.numel():
                old = numbers.index_select(0, index)
                numbers[index] = compute(old, *mine)
                flat[torch.as_tensor(list(where))] = old
                continue
            for lane, i, one in zip(where, index.tolist(), zip(*mine, strict=True), strict=True):
                old = numbers[i].clone()
                numbers[i] = compute(old, *one)
                flat[lane] = old
        return before

    def _cells(
        self, at: Tensor, mask: Tensor | None, size: int, verb: str
    ) -> Iterator[tuple[Tensor | None, Tensor, Tensor]]:
        """Yield, for each buffer that is accessed: the lanes (None: all), the buffer as cells of `size` bytes, and each
        lane's cell."""
        flat = at.reshape(-1)
        lanes = None if mask is None or bool(mask.all()) else mask.reshape(-1).nonzero().view(-1)
        used = flat if lanes is None else flat[lanes]
        if not used.numel():
            return
        low, high = int(used.min()), int(used.max())
        place = bisect_right(self._starts, low) - 1
        if place >= 0 and high + size <= self._starts[place] + self._bytes[place].numel():
            self._follow(place, used, verb)
            yield lanes, *self._aligned(place, used, size, verb)
            return
        places = torch.searchsorted(torch.tensor(self._starts), used, right=True) - 1
        for place in places.unique().tolist():
            here = (places == place).nonzero().view(-1)
            addresses = used[here]
            end = self._starts[place] + self._bytes[place].numel() if place >= 0 else 0
            if place < 0 or int(addresses.max()) + size > end:
                raise KernelFault(f"{verb} {self._nearest(int(addresses.max()), size)}")
            self._follow(place, addresses, verb)
            yield (here if lanes is None else lanes[here]), *self._aligned(place, addresses, size, verb)

    def _follow(self, place: int, used: Tensor, verb: str) -> None:
        """Raise KernelFault where two blocks of a launch touch one element, and one of them writes it."""
        if not self._followed:
            return
        index, mine = used - self._starts[place], self._block
        for of in (self._writers, self._readers):
            if place not in of:
                of[place] = torch.zeros(self._bytes[place].numel(), dtype=torch.int32)
        writers, readers = self._writers[place], self._readers[place]
        wrote = writers[index]
        if verb == "reads":
            if bool(((wrote != 0) & (wrote != mine)).any()):
                raise KernelFault(f"reads of {self._names[place]} what another block of the same launch writes")
            readers[index] = torch.where((readers[index] == 0) | (readers[index] == mine), mine, -1).to(torch.int32)
            return
        read = readers[index]
        if bool(((read != 0) & (read != mine)).any()):
            raise KernelFault(f"writes of {self._names[place]} what another block of the same launch reads")
        writers[index] = mine

    def _aligned(self, place: int, used: Tensor, size: int, verb: str) -> tuple[Tensor, Tensor]:
        start, held = self._starts[place], self._bytes[place]
        if size > 1 and bool(((used % size) != 0).any()):
            raise KernelFault(f"{verb} at an address of {self._names[place]} that is not a multiple of {size}")
        lead = -start % size
        whole = (held.numel() - lead) // size
        return held[lead : lead + whole * size].view(_BITS[size]), (used - start - lead) // size

    def _nearest(self, address: int, size: int) -> str:
        ends = [(max(s - address, address + size - s - b.numel()), i)
                for i, (s, b) in enumerate(zip(self._starts, self._bytes, strict=True))]  # fmt: skip
        if not ends:
            return "an address that no buffer has"
        away, i = min(ends)
        return f"{away} bytes {'before' if address < self._starts[i] else 'past the end of'} {self._names[i]}"


def _together(at: Tensor, *more: Any) -> list[Any]:
    shapes = [m.shape for m in more if m is not None]
    shape = torch.broadcast_shapes(at.shape, *shapes)
    return [at.expand(shape), *(None if m is None else m.expand(shape) for m in more)]


def _as_bits(value: Tensor) -> Tensor:
    if value.dtype == torch.bool:
        return value.to(torch.uint8)
    if value.dtype in FP8 or value.dtype == torch.int8:
        return value.contiguous().view(torch.uint8)
    return value.contiguous().view(_BITS[value.element_size()])
