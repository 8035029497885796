"""Memory with a guard zone before and behind it, so that a kernel's writes outside of its tensors are seen.

Relies on torch alone. What lands more than GUARD bytes away is not seen here: it hits another tensor or a bad address.
"""

from typing import Any

import torch

GUARD = 4096  # bytes; a multiple of the 512 that torch's CUDA allocator aligns to: no buffer loses its alignment
PATTERN = 0xFF  # NaN in every float type: what is read outside shows in the result


class Guarded:
    """Some bytes on a device between two zones that hold a pattern."""

    def __init__(self, nbytes: int, device: Any) -> None:
        self.nbytes, self._pattern = nbytes, PATTERN
        self._all = torch.empty(nbytes + 2 * GUARD, dtype=torch.uint8, device=device)
        self.fill(PATTERN)

    @property
    def bytes(self) -> Any:
        """The bytes between the zones."""
        return self._all[GUARD : GUARD + self.nbytes]

    def fill(self, pattern: int) -> None:
        """Fills the bytes and the zones."""
        self._pattern = pattern
        self._all.fill_(pattern)

    def arm(self, pattern: int) -> None:
        """Fills the zones alone."""
        self._pattern = pattern
        for zone in self._zones():
            zone.fill_(pattern)

    def view(self, dtype: Any, size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> Any:
        """A tensor in the bytes; `offset` counts elements from their beginning."""
        empty = torch.empty(0, dtype=dtype, device=self._all.device)
        return empty.set_(self._all.untyped_storage(), GUARD // dtype.itemsize + offset, size, stride)

    def storage(self) -> Any:
        """The bytes as a storage of their own, which keeps the memory alive."""
        return self._all.untyped_storage()[GUARD : GUARD + self.nbytes]

    def stray(self) -> int:
        """Bytes of the zones that no longer hold the pattern."""
        return sum(int((zone != self._pattern).sum()) for zone in self._zones())

    def _zones(self) -> tuple[Any, Any]:
        return self._all[:GUARD], self._all[GUARD + self.nbytes :]


def said(stray: int) -> str:
    """What is wrong with a kernel that changed so many guarded bytes."""
    return f"wrote {stray} bytes outside of its output"
