"""Times several sides against one another on one GPU, so that only the code differs.

Each round visits every side twice, in a random order and back. Before each launch (warm-up too) all memory of the side
but its inputs is refilled with NaN, zeros or random bytes, and inputs that it changes get their values again. Then the
L2 is flushed by several writes of twice its size. Before that the GPU sleeps for several times as long as the host
takes for the slowest side, so that all is queued before the GPU reaches it. CUDA events enclose the launch alone. After
each launch its outputs are sampled on the GPU: by a checksum, which must match the verified outputs, or by elements at
random positions where outputs may differ between launches. Inputs and guard zones are checked after every warm-up
launch, after a random one of four others, and at the end by the caller. Each side has its own seed and its own buffers,
which may lie at several places that take turns. Instrumented builds are never timed here.
"""

import random
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

import torch
from pgo_agent.sandbox.guard_zones import NAN, ZERO, Fill
from pgo_agent.sandbox.judge.launches.plan_executor import Replay

WARMUP = 3  # launches at each place before the first round
# Writes of the flush: some 150 us on an H200. With one, cuBLAS's 47 us were timed as 49 from an idle host, and as 71
# from one that compiled on every core.
FLUSHES = 4
# A library works on the host between its launches, and a plan may have many; on a host that builds candidates on every
# core both take longer. One compiled reference was timed as twelve times the time of the GPU, and a kernel of several
# launches (`fla_parallel_rebased`) as 0.14 to 0.24 ms.
AHEAD = 4  # times as long as the host took for the last warm-up launch
LONGEST_AHEAD = 0.05  # seconds
CYCLES = 2e9  # of a second of sleep, at most: the GPU's clock is slower
PIECE = 1 << 22  # words of a checksum that are summed at a time
LOOKED = 4  # one in so many timed launches has its inputs and guard zones checked
DRAWN = 1 << 16  # most elements of an output that are sampled after a launch
Drawn = list[tuple[Any, Any]]  # for each output: positions, and the elements there
T = TypeVar("T")


@dataclass(frozen=True)
class BufferSet:
    """A side's code on its own buffers, whose place in memory changes a short launch by a percent."""

    launch: Callable[[], object]  # enqueues
    replay: Replay | None = None  # refilled before each launch; checked and refilled after it
    inputs_checksum: int = 0  # checksum of its inputs, in host memory
    restored: Sequence[tuple[Any, Any]] = ()  # without a replay: inputs that it may change, and their values

    def wipe(self) -> None:
        """Refill the buffers: a later launch must not find results there, nor inputs that an earlier one changed."""
        if self.replay is not None:
            self.replay.wipe(secrets.choice((NAN, ZERO, Fill())))
        for changed, given in self.restored:
            changed.copy_(given)


@dataclass
class TimedSide:
    """Something to time, at one place or at several that take turns by round."""

    name: str
    places: Sequence[BufferSet]
    deterministic: bool = True
    host: float = 0.0  # seconds that the host takes for a launch
    samples: list[float] = field(default_factory=list)  # ms, one a round: both visits together, halved
    checksums: list[Any] = field(default_factory=list)  # of the outputs of every launch
    drawn: list[Drawn] = field(default_factory=list)  # from the outputs of every launch, where they may differ
    changed: list[Any] = field(default_factory=list)  # whether the inputs changed; on the GPU
    strays: list[Any] = field(default_factory=list)  # bytes written outside; on the GPU

    def look(self, place: BufferSet, around: bool) -> None:
        """Enqueue a check of a launch's outputs, and if `around` also of its inputs and guard zones."""
        if place.replay is None:
            return
        if self.deterministic:
            self.checksums.append(checksum(place.replay.outputs))
        else:
            self.drawn.append(drawn(place.replay.outputs))
        if around:
            self.changed.append(checksum(place.replay.given) != place.inputs_checksum)
            self.strays.append(place.replay.strays())

    def look_around(self) -> None:
        """Enqueue a check of inputs and guard zones at every place."""
        for replay, inputs_checksum in ((p.replay, p.inputs_checksum) for p in self.places if p.replay is not None):
            self.changed.append(checksum(replay.given) != inputs_checksum)
            self.strays.append(replay.strays())

    def consistent(self, verified: int | None = None) -> bool:
        """Whether every launch gave the same outputs, equal to the `verified` ones if given."""
        if not self.deterministic or not self.checksums:
            return True
        sums = torch.stack(self.checksums)
        return bool((sums == (sums[0] if verified is None else verified)).all())

    @property
    def meddled(self) -> bool:
        """Whether a check found changed inputs."""
        return bool(self.changed) and bool(torch.stack(self.changed).any())

    @property
    def stray(self) -> int:
        """The most bytes that a check found written outside of the side's buffers."""
        return int(torch.stack(self.strays).max()) if self.strays else 0


def rounded(timed: Mapping[str, TimedSide]) -> dict[str, list[float]]:
    """Return the samples of each side in ms, rounded to the nanosecond."""
    return {name: [round(x, 6) for x in s.samples] for name, s in timed.items()}


def there_and_back(sides: Sequence[T], rng: random.Random) -> list[T]:
    """Return the visits of a round: all sides in random order and back, so that clock drift falls on all alike.

    In a fixed order, periodic disturbances (periods of three or four visits were seen) would fall on the same sides
    each time. Of 828 intervals of kernels against themselves on an H200, 82 % then held 1; in random order, at the
    places of `session.py`, 92 % did.
    """
    order = rng.sample(sides, len(sides))
    return [*order, *reversed(order)]


class Timer:
    """The timer of one GPU, with its flush buffer."""

    def __init__(self, device: Any) -> None:
        l2 = torch.cuda.get_device_properties(device).L2_cache_size
        self._flush = torch.empty(2 * l2 // 4, dtype=torch.int32, device=device)
        self._random = random.SystemRandom()  # no kernel can tell from its place in a round which side it is

    def run(self, sides: Sequence[TimedSide], rounds: int) -> None:
        """Add `rounds` samples to every side. Raises CudaError or RuntimeError when a launch fails."""
        for side, place in ((s, p) for s in sides for p in s.places):
            for _ in range(WARMUP):
                place.wipe()
                began = time.perf_counter()
                place.launch()
                side.host = time.perf_counter() - began
                side.look(place, around=True)
            place.wipe()
        visits: list[tuple[TimedSide, Any, Any]] = []
        ahead = int(CYCLES * min(AHEAD * max((s.host for s in sides), default=0.0), LONGEST_AHEAD))
        for r in range(rounds):
            visits += [self._visit(s, r, ahead) for s in there_and_back(sides, self._random)]
        torch.cuda.synchronize()
        for s in sides:
            times = [start.elapsed_time(end) for owner, start, end in visits if owner is s]
            s.samples += [(a + b) / 2 for a, b in zip(times[::2], times[1::2], strict=True)]

    def _visit(self, s: TimedSide, turn: int, ahead: int) -> tuple[TimedSide, Any, Any]:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        place = s.places[turn % len(s.places)]
        _sleep(ahead)
        place.wipe()
        for _ in range(FLUSHES):
            self._flush.zero_()
        start.record()
        place.launch()
        end.record()
        s.look(place, around=self._random.randrange(LOOKED) == 0)
        place.wipe()
        return s, start, end


def _sleep(cycles: int) -> None:
    """Enqueue a sleep of the GPU; without CUDA launches are no later than their events."""
    if torch.backends.cuda.is_built():
        torch.cuda._sleep(cycles)


def checksum(tensors: Sequence[Any]) -> Any:
    """Return a checksum on the tensors' device, of every bit and its position; 0 for no tensors."""
    total = torch.zeros((), dtype=torch.int64, device=tensors[0].device if tensors else "cpu")
    for o in tensors:
        flat = o.contiguous().reshape(-1).view(torch.uint8)
        words = flat[: flat.numel() // 8 * 8].view(torch.int64)
        rest = flat[words.numel() * 8 :].to(torch.int64)
        total = total * 31 + _weighted(words) + 7 * _weighted(rest)
    return total


def _weighted(words: Any) -> Any:
    """Return the sum of the words, each times its own odd number, modulo 2^64; piece by piece to save memory."""
    total = torch.zeros((), dtype=torch.int64, device=words.device)
    for i in range(0, words.numel(), PIECE):
        piece = words[i : i + PIECE]
        total = total * 0x9E3779B1 + (piece * _weights(str(words.device))[: piece.numel()]).sum()
    return total


@cache
def _weights(device: str) -> Any:
    """Return secret random odd numbers: with known ones two words could change and keep the sum."""
    return torch.empty(PIECE, dtype=torch.int64, device=device).random_(-(1 << 63), None, generator=_chance(device)) | 1


def drawn(outputs: Sequence[Any]) -> Drawn:
    """Return elements at random positions from each output; all of a small one."""
    result = []
    for o in outputs:
        flat = o.reshape(-1)
        if flat.numel() > DRAWN:
            at = torch.randint(flat.numel(), (DRAWN,), device=flat.device, generator=_chance(str(flat.device)))
        else:
            at = torch.arange(flat.numel(), device=flat.device)
        result.append((at, flat[at]))
    return result


@cache
def _chance(device: str) -> torch.Generator:
    return torch.Generator(device=device).manual_seed(secrets.randbits(62))
