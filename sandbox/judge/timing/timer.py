"""Times several sides against one another on one GPU, so that only the code differs.

Each round visits every side twice, there and back, in an order drawn for that round. Before each launch, those that
warm up as well, all memory of the side but its inputs is filled anew, by chance with NaN, zeros or bytes of chance,
and the L2 is flushed by writes of twice its size, several, so that the launch is queued before the GPU gets to it:
from a busy host a library's call comes late. CUDA events then enclose the launch alone. After each launch its outputs
are looked at on the GPU: a checksum, for every launch must have produced the very outputs that were verified, or
elements at places of chance where they may differ from launch to launch. Inputs and guard zones are looked at after
every launch that warms up, after one of four others (nobody can tell which), and at the end by whoever opened the
sides. Each side has inputs of its own seed and buffers of its own, at several places that take turns, where they are
given. Instrumented builds never come here.
"""

import random
import secrets
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
PIECE = 1 << 22  # words of a checksum taken at a time
LOOKED = 4  # one timed launch in so many has its inputs and guard zones looked at
DRAWN = 1 << 16  # elements of an output that are compared after a launch; all of one that has no more
Drawn = list[tuple[Any, Any]]  # of each output: places in it, and what stood there
T = TypeVar("T")


@dataclass(frozen=True)
class BufferSet:
    """A side's code on buffers of its own: where those lie in memory is worth a percent of a short launch."""

    launch: Callable[[], object]  # enqueues
    replay: Replay | None = None  # filled anew before, looked at and filled anew after each launch
    given: int = 0  # checksum of its inputs, kept in host memory

    def wipe(self) -> None:
        """Leaves nothing behind: the next launch here, or one at another place of the same inputs, could find it."""
        if self.replay is not None:
            self.replay.wipe(secrets.choice((NAN, ZERO, Fill())))


@dataclass
class TimedSide:
    """Something to be timed, at one place or at several that take turns, round by round."""

    name: str
    places: Sequence[BufferSet]
    deterministic: bool = True
    samples: list[float] = field(default_factory=list)  # ms, one a round: both visits together, halved
    checksums: list[Any] = field(default_factory=list)  # of the outputs of every launch
    drawn: list[Drawn] = field(default_factory=list)  # from the outputs of every launch, where they may differ
    changed: list[Any] = field(default_factory=list)  # whether a launch had changed the inputs; on the GPU
    strays: list[Any] = field(default_factory=list)  # bytes that a launch had written outside; on the GPU

    def look(self, place: BufferSet, around: bool) -> None:
        """Enqueues a look at what a launch left: at the outputs, and if asked for at all that lies `around` them."""
        if place.replay is None:
            return
        if self.deterministic:
            self.checksums.append(checksum(place.replay.outputs))
        else:
            self.drawn.append(drawn(place.replay.outputs))
        if around:
            self.changed.append(checksum(place.replay.given) != place.given)
            self.strays.append(place.replay.strays())

    def look_around(self) -> None:
        """The same of inputs and guard zones, at every place."""
        for replay, given in ((p.replay, p.given) for p in self.places if p.replay is not None):
            self.changed.append(checksum(replay.given) != given)
            self.strays.append(replay.strays())

    def consistent(self, verified: int | None = None) -> bool:
        """Whether every launch gave the same outputs, and those that were verified if that is known."""
        if not self.deterministic or not self.checksums:
            return True
        sums = torch.stack(self.checksums)
        return bool((sums == (sums[0] if verified is None else verified)).all())

    @property
    def meddled(self) -> bool:
        """Whether a launch was seen to have changed the inputs."""
        return bool(self.changed) and bool(torch.stack(self.changed).any())

    @property
    def stray(self) -> int:
        """Most bytes that were seen to be written outside of the side's buffers."""
        return int(torch.stack(self.strays).max()) if self.strays else 0


def rounded(timed: Mapping[str, TimedSide]) -> dict[str, list[float]]:
    """The samples of each side as they are recorded: ms, to the nanosecond."""
    return {name: [round(x, 6) for x in s.samples] for name, s in timed.items()}


def there_and_back(sides: Sequence[T], rng: random.Random) -> list[T]:
    """The visits of a round: all sides in any order, and back again, so that a drift of the clocks falls on all alike.

    In one order for all rounds, what comes with the beat of the launches (a period of three or four visits was seen)
    falls on the same sides each time, and passes for a difference: intervals of kernels against themselves then held 1
    in 82 % of 828 on an H200, and in 92 % so, at the places of `session.py`.
    """
    order = rng.sample(sides, len(sides))
    return [*order, *reversed(order)]


class Timer:
    """Holds the flush buffer of one GPU."""

    def __init__(self, device: Any) -> None:
        l2 = torch.cuda.get_device_properties(device).L2_cache_size
        self._flush = torch.empty(2 * l2 // 4, dtype=torch.int32, device=device)
        self._random = random.SystemRandom()  # no kernel can tell from its place in a round which side it is

    def run(self, sides: Sequence[TimedSide], rounds: int) -> None:
        """Adds `rounds` samples to every side. Raises CudaError or RuntimeError when a launch faults."""
        for side, place in ((s, p) for s in sides for p in s.places):
            for _ in range(WARMUP):
                place.wipe()
                place.launch()
                side.look(place, around=True)
            place.wipe()
        visits: list[tuple[TimedSide, Any, Any]] = []
        for r in range(rounds):
            visits += [self._visit(s, r) for s in there_and_back(sides, self._random)]
        torch.cuda.synchronize()
        for s in sides:
            times = [start.elapsed_time(end) for owner, start, end in visits if owner is s]
            s.samples += [(a + b) / 2 for a, b in zip(times[::2], times[1::2], strict=True)]

    def _visit(self, s: TimedSide, turn: int) -> tuple[TimedSide, Any, Any]:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        place = s.places[turn % len(s.places)]
        place.wipe()
        for _ in range(FLUSHES):
            self._flush.zero_()
        start.record()
        place.launch()
        end.record()
        s.look(place, around=self._random.randrange(LOOKED) == 0)
        place.wipe()
        return s, start, end


def checksum(tensors: Sequence[Any]) -> Any:
    """A number on the tensors' device that depends on every bit of them and on where it stands; 0 of none."""
    total = torch.zeros((), dtype=torch.int64, device=tensors[0].device if tensors else "cpu")
    for o in tensors:
        flat = o.contiguous().reshape(-1).view(torch.uint8)
        words = flat[: flat.numel() // 8 * 8].view(torch.int64)
        rest = flat[words.numel() * 8 :].to(torch.int64)
        total = total * 31 + _weighted(words) + 7 * _weighted(rest)
    return total


def _weighted(words: Any) -> Any:
    """The sum of the words, each times an odd number of its own, modulo 2^64; a piece at a time, to save memory."""
    total = torch.zeros((), dtype=torch.int64, device=words.device)
    for i in range(0, words.numel(), PIECE):
        piece = words[i : i + PIECE]
        total = total * 0x9E3779B1 + (piece * _weights(str(words.device))[: piece.numel()]).sum()
    return total


@cache
def _weights(device: str) -> Any:
    """Of chance: who knew them could change two words so that the sum stays."""
    return torch.empty(PIECE, dtype=torch.int64, device=device).random_(-(1 << 63), None, generator=_chance(device)) | 1


def drawn(outputs: Sequence[Any]) -> Drawn:
    """Elements at places that nobody can foretell, from each output; all of a small one."""
    found = []
    for o in outputs:
        flat = o.reshape(-1)
        if flat.numel() > DRAWN:
            at = torch.randint(flat.numel(), (DRAWN,), device=flat.device, generator=_chance(str(flat.device)))
        else:
            at = torch.arange(flat.numel(), device=flat.device)
        found.append((at, flat[at]))
    return found


@cache
def _chance(device: str) -> torch.Generator:
    return torch.Generator(device=device).manual_seed(secrets.randbits(62))
