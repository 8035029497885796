"""Expected values on a GPU, sealed: a candidate's kernels that read all of its memory learn nothing of them.

The bits are mixed (xor) with random words that only a secret seed in host memory gives again, so nothing has to be
copied to the host and back: three outputs of 67 million values took 0.8 s each time. They are laid open in pieces, and
each piece is wiped after its use. Where the GPU has little room they lie in host memory, sealed as well. Values of the
CPU stay as they are: no candidate's kernels run there beside them.

Does not compare: see `deviation.py`.
"""

import math
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

ROOM = 0.5  # share of a GPU's memory that sealed values leave free
PIECE = 1 << 24  # values that are sealed, and laid open, at a time


@dataclass(frozen=True)
class Sealed:
    """The values of one tensor, in float64 or int64."""

    shape: tuple[int, ...]
    dtype: Any
    _words: Any  # flat int64
    _seed: int | None  # of the random words; None: the values are not mixed

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    def pieces(self, device: Any) -> Iterator[Any]:
        """Give flat pieces of PIECE values on a device; each is wiped before the next one."""
        for n, words in enumerate(_split(self._words)):
            if self._seed is None:
                yield words.view(self.dtype).to(device)
                continue
            piece = _mixed(words.to(device, copy=True), self._seed, n)
            try:
                yield piece.view(self.dtype)
            finally:
                piece.zero_()

    def at(self, positions: Any) -> Any:
        """Return the values at flat positions, on their device."""
        values = torch.empty(positions.shape, dtype=self.dtype, device=positions.device)
        for n, piece in enumerate(self.pieces(positions.device)):
            here = positions // PIECE == n
            values[here] = piece[positions[here] % PIECE]
        return values

    def beside(self, device: Any) -> "Sealed":
        """Return it with its words on the device, still sealed."""
        return replace(self, _words=self._words.to(device))


def seal(values: Any) -> Sealed:
    """Seal a tensor's values on its device, or in host memory where the device has little room.

    The tensor itself stays readable: its owner wipes it.
    """
    dtype = torch.float64 if values.is_floating_point() else torch.int64
    flat, device = values.detach().reshape(-1), values.device
    seed = None if device.type == "cpu" else secrets.randbits(62)
    words = torch.empty(len(flat), dtype=torch.int64, device=device if _roomy(device, 8 * len(flat)) else "cpu")
    for n, (piece, place) in enumerate(zip(_split(flat), _split(words), strict=True)):
        own = piece.to(dtype, copy=True).view(torch.int64)
        place.copy_(own if seed is None else _mixed(own, seed, n))
    return Sealed(tuple(values.shape), dtype, words, seed)


def pieces(values: Any, device: Any) -> Iterator[Any]:
    """Give flat pieces of PIECE values on a device, of a tensor or of sealed values."""
    if isinstance(values, Sealed):
        return values.pieces(device)
    return (piece.to(device) for piece in _split(values.detach().reshape(-1)))


def _split(flat: Any) -> Iterator[Any]:
    return (piece for piece in flat.split(PIECE) if len(piece))


def _mixed(words: Any, seed: int, n: int) -> Any:
    """Mix words with the n-th stream of a seed, in place: a second time gives what was there before."""
    generator = torch.Generator(device=words.device).manual_seed((seed + n) % (1 << 63))
    stream = torch.empty_like(words).random_(-(1 << 63), None, generator=generator)
    words ^= stream
    stream.zero_()
    return words


def _roomy(device: Any, more: int) -> bool:
    """Whether a device has ROOM left beside `more` bytes. Memory in torch's cache counts as free."""
    if device.type == "cpu":
        return True
    free, total = torch.cuda.mem_get_info(device)
    free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return bool(free - more >= ROOM * total)
