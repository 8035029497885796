"""Expected values on a GPU, sealed: a candidate's kernels can neither read them there nor change them unnoticed.

The bits are mixed (xor) with random words that only a secret seed in host memory gives again, so nothing has to be
copied to the host and back: three outputs of 67 million values took 0.8 s each time. They are laid open in pieces while
no candidate runs, and each piece is wiped after its use. A keyed sum of each piece, in host memory, shows whether its
words are still those that were written. Where the GPU has little room the words lie in host memory. Values of the CPU
stay as they are: no candidate's kernels run there beside them.

Does not compare: see `deviation.py`. Does not wipe what comparisons leave in memory that torch has freed.
"""

import math
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

ROOM = 0.75  # share of a GPU's memory that sealed values leave free
PIECE = 1 << 24  # values that are sealed, and laid open, at a time
DAMAGED = "a launch wrote into memory of the judge, which none of its tensors lies in"


class Damaged(RuntimeError):
    """Somebody changed sealed words: a launch wrote into memory of the judge."""


@dataclass(frozen=True)
class Key:
    """What opens sealed values; it never leaves host memory."""

    device: Any  # whose random streams mixed the words: another device's are others
    mixing: int  # seed of the streams that are mixed in
    summing: int  # seed of the weights of the sums
    sums: tuple[int, ...]  # of each piece


@dataclass(frozen=True)
class Sealed:
    """The values of one tensor, in float64 or int64."""

    shape: tuple[int, ...]
    dtype: Any
    _words: Any  # flat int64
    _key: Key | None  # None: the values are not mixed

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def intact(self) -> bool:
        """Whether no launch has changed the words; a piece at a time is read."""
        on_gpu = self._words.device.type != "cpu"  # where launches can reach them
        return not on_gpu or self._key is None or _same(self._words, self._key)

    def pieces(self, device: Any) -> Iterator[Any]:
        """Give flat pieces of PIECE values on a device; each is wiped before the next one. Raises Damaged."""
        for n, words in enumerate(_split(self._words)):
            if self._key is None:
                yield words.view(self.dtype).to(device)
                continue
            piece = words.to(self._key.device, copy=True)
            if _sum(piece, self._key.summing, n) != self._key.sums[n]:
                raise Damaged(DAMAGED)
            piece = _mixed(piece, self._key.mixing, n)
            try:
                yield piece.view(self.dtype).to(device)
            finally:
                piece.zero_()

    def at(self, positions: Any) -> Any:
        """Return the values at flat positions, on their device. Raises Damaged."""
        values = torch.empty(positions.shape, dtype=self.dtype, device=positions.device)
        for n, piece in enumerate(self.pieces(positions.device)):
            here = positions // PIECE == n
            values[here] = piece[positions[here] % PIECE]
        return values


def seal(values: Any) -> Sealed:
    """Seal a tensor's values on its device, or in host memory where the device has little room.

    The tensor itself stays readable: its owner wipes it.
    """
    dtype = torch.float64 if values.is_floating_point() else torch.int64
    flat, device = values.detach().reshape(-1), values.device
    words = torch.empty(len(flat), dtype=torch.int64, device=device if _roomy(device, 8 * len(flat)) else "cpu")
    own = (piece.to(dtype, copy=True).view(torch.int64) for piece in _split(flat))
    key = None if device.type == "cpu" else _written(words, own, device)
    if key is None:
        for piece, place in zip(own, _split(words), strict=True):
            place.copy_(piece)
    return Sealed(tuple(values.shape), dtype, words, key)


def _written(words: Any, pieces: Iterator[Any], device: Any) -> Key:
    """Mix pieces into place; return the key."""
    mixing, summing, sums = secrets.randbits(62), secrets.randbits(62), list[int]()
    for n, (piece, place) in enumerate(zip(pieces, _split(words), strict=True)):
        place.copy_(_mixed(piece, mixing, n))
        sums.append(_sum(piece, summing, n))
    return Key(device, mixing, summing, tuple(sums))


def pieces(values: Any, device: Any) -> Iterator[Any]:
    """Give flat pieces of PIECE values on a device, of a tensor or of sealed values. Raises Damaged."""
    if isinstance(values, Sealed):
        return values.pieces(device)
    return (piece.to(device) for piece in _split(values.detach().reshape(-1)))


def _split(flat: Any) -> Iterator[Any]:
    return (piece for piece in flat.split(PIECE) if len(piece))


def _stream(words: Any, seed: int, n: int) -> Any:
    """Return as many random words, the n-th stream of a seed."""
    generator = torch.Generator(device=words.device).manual_seed((seed + n) % (1 << 63))
    return torch.empty_like(words).random_(-(1 << 63), None, generator=generator)


def _mixed(words: Any, seed: int, n: int) -> Any:
    """Mix words with the n-th stream of a seed, in place: a second time gives what was there before."""
    stream = _stream(words, seed, n)
    words ^= stream
    stream.zero_()
    return words


def _sum(words: Any, seed: int, n: int) -> int:
    """Return the sum of the words, each times its own odd random number, modulo 2^64."""
    weighted = _stream(words, seed, n)
    weighted |= 1
    weighted *= words
    total = int(weighted.sum())
    weighted.zero_()
    return total


def _same(words: Any, key: Key) -> bool:
    """Whether all words are those of the key's sums."""
    return all(_sum(piece, key.summing, n) == key.sums[n] for n, piece in enumerate(_split(words)))


def _roomy(device: Any, more: int) -> bool:
    """Whether a device has ROOM left beside `more` bytes. Memory in torch's cache counts as free."""
    if device.type == "cpu":
        return True
    free, total = torch.cuda.mem_get_info(device)
    free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return bool(free - more >= ROOM * total)
