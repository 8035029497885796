"""Memory with a guard zone around each of its buffers, so that what a kernel does outside of its tensors is seen.

A write shows as a zone that no longer holds its fill; a read shows in results that change with that fill. Relies on
torch alone. What lands more than GUARD bytes away is not seen here: it hits another buffer or a bad address.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

GUARD = 4096  # bytes
ALIGN = 512  # bytes, as torch's CUDA allocator aligns: no buffer loses its alignment
PATTERN = 0xFF  # NaN in every float type: what is read outside shows in the result
WORD = 8  # bytes that are drawn at once
TRIES = 8  # blocks of the allocator that are looked at


@dataclass(frozen=True)
class Fill:
    """What memory is to hold: one byte all over, or random bytes from a secret seed."""

    byte: int | None = None
    seed: int = field(default_factory=lambda: secrets.randbits(62))

    def into(self, memory: Any) -> None:
        """Write it into a tensor of bytes that begins on a multiple of 8."""
        if self.byte is not None:
            memory.fill_(self.byte)
            return
        generator = torch.Generator(device=memory.device).manual_seed(self.seed)
        words_end = memory.numel() // WORD * WORD
        if words_end:
            memory[:words_end].view(torch.int64).random_(-(1 << 63), None, generator=generator)
        if words_end < memory.numel():
            memory[words_end:].random_(generator=generator)


NAN, ZERO = Fill(PATTERN, 0), Fill(0, 0)


class Arena:
    """Buffers of some sizes in one piece of memory, a zone before each and one behind the last."""

    def __init__(self, sizes: Sequence[int], device: Any) -> None:
        self._sizes, self._starts = tuple(sizes), list[int]()
        end = 0
        for nbytes in sizes:
            self._starts.append(-(-(end + GUARD) // ALIGN) * ALIGN)
            end = self._starts[-1] + nbytes
        self._memory = _block(end + GUARD, device)
        self._zoned = NAN
        self.fill(NAN, NAN)

    def part(self, n: int) -> Any:
        """Return the bytes of a buffer."""
        return self._memory[self._starts[n] : self._starts[n] + self._sizes[n]]

    def view(self, n: int, dtype: Any, size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> Any:
        """Return a tensor in a buffer; `offset` counts elements from its beginning."""
        empty = torch.empty(0, dtype=dtype, device=self._memory.device)
        start = self._starts[n] // dtype.itemsize + offset
        return empty.set_(self._memory.untyped_storage(), start, size, stride)

    def storage(self, n: int) -> Any:
        """Return a buffer as a storage of its own, which keeps the memory alive."""
        return self._memory.untyped_storage()[self._starts[n] : self._starts[n] + self._sizes[n]]

    def fill(self, buffers: Fill, zones: Fill) -> None:
        """Fill the buffers, and the zones."""
        buffers.into(self._memory)
        self.arm(zones)

    def arm(self, zones: Fill) -> None:
        """Fill the zones alone."""
        self._zoned = zones
        expected = self._held()
        for zone, part in zip(self._zones(), expected.split([z.numel() for z in self._zones()]), strict=True):
            zone.copy_(part)

    def strays(self) -> Any:
        """Count the bytes of the zones that no longer hold their fill: a tensor on the memory's device, not awaited."""
        return (torch.cat(self._zones()) != self._held()).sum()

    def _held(self) -> Any:
        """Return what the zones were filled with, one after another."""
        count = sum(z.numel() for z in self._zones())
        expected = torch.empty(count, dtype=torch.uint8, device=self._memory.device)
        self._zoned.into(expected)
        return expected

    def _zones(self) -> list[Any]:
        starts = [*self._starts, self._memory.numel()]
        ends = [0, *(s + n for s, n in zip(self._starts, self._sizes, strict=True))]
        return [self._memory[end:start] for end, start in zip(ends, starts, strict=True)]


class Guarded:
    """Some bytes on a device between two zones that hold a byte all over."""

    def __init__(self, nbytes: int, device: Any) -> None:
        self.nbytes, self._arena = nbytes, Arena([nbytes], device)

    @property
    def bytes(self) -> Any:
        """The bytes between the zones."""
        return self._arena.part(0)

    def fill(self, pattern: int) -> None:
        """Fill the bytes and the zones."""
        self._arena.fill(Fill(pattern, 0), Fill(pattern, 0))

    def arm(self, pattern: int) -> None:
        """Fill the zones alone."""
        self._arena.arm(Fill(pattern, 0))

    def view(self, dtype: Any, size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> Any:
        """Return a tensor in the bytes; `offset` counts elements from their beginning."""
        return self._arena.view(0, dtype, size, stride, offset)

    def storage(self) -> Any:
        """Return the bytes as a storage of their own, which keeps the memory alive."""
        return self._arena.storage(0)

    def stray(self) -> int:
        """Count the bytes of the zones that no longer hold the pattern."""
        return int(self._arena.strays())


def arenas(sizes: Sequence[int], device: Any) -> list[tuple[Arena, int]]:
    """Return a place for a buffer of each size: the arena, and which of its buffers.

    All in one, so that no unfilled memory lies between them. Without guard zones each is an allocation of its own, as a
    memory checker wants it.
    """
    if not GUARD:
        return [(Arena([n], device), 0) for n in sizes]
    arena = Arena(sizes, device)
    return [(arena, n) for n in range(len(sizes))]


def _block(nbytes: int, device: Any) -> Any:
    """Return `nbytes` bytes, or the whole block that torch's CUDA allocator takes for them: the rest of a block, up to
    a megabyte, would neither be filled nor looked at."""
    if torch.device(device).type != "cuda" or not GUARD:
        return torch.empty(nbytes, dtype=torch.uint8, device=device)
    size = -(-nbytes // ALIGN) * ALIGN
    for _ in range(TRIES):
        before = torch.cuda.memory_allocated(device)
        memory = torch.empty(size, dtype=torch.uint8, device=device)
        used = torch.cuda.memory_allocated(device) - before
        if used <= size:
            break
        del memory
        size = used
    else:
        memory = torch.empty(size, dtype=torch.uint8, device=device)
    return memory


def said(stray: int) -> str:
    """Return what is wrong with a kernel that changed `stray` guarded bytes."""
    return f"wrote {stray} bytes outside of its output"
