"""Times several sides against one another on one GPU, so that only the code differs.

Each round visits every side twice, there and back, in an order drawn for that round. Before each launch the side's
outputs are poisoned and the L2 is flushed by writes of twice its size, several, so that the launch is queued before the
GPU gets to it: from a busy host a library's call comes late. CUDA events then enclose the launch alone. After each
launch a checksum of the outputs is taken on the GPU: every timed launch must have produced the very outputs that were
verified. Each side has inputs of its own seed and buffers of its own, at several places that take turns, where they are
given. Instrumented builds never come here.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

import torch
from pgo_agent.sandbox.judge.replay import NAN, Replay

WARMUP = 3  # launches at each place before the first round
# Writes of the flush: some 150 us on an H200. With one, cuBLAS's 47 us were timed as 49 from an idle host, and as 71
# from one that compiled on every core.
FLUSHES = 4
PIECE = 1 << 22  # words of a checksum taken at a time
T = TypeVar("T")


@dataclass(frozen=True)
class Place:
    """A side's code on buffers of its own: where those lie in memory is worth a percent of a short launch."""

    launch: Callable[[], object]  # enqueues
    replay: Replay | None = None  # poisoned before, checked and poisoned after each launch

    def wipe(self) -> None:
        """Leaves no results behind: a launch at another place of the same inputs could find and copy them."""
        if self.replay is not None:
            self.replay.poison(NAN)


@dataclass
class Side:
    """Something to be timed, at one place or at several that take turns, round by round."""

    name: str
    places: Sequence[Place]
    deterministic: bool = True
    samples: list[float] = field(default_factory=list)  # ms, one a round: both visits together, halved
    checksums: list[Any] = field(default_factory=list)

    def consistent(self, verified: int | None = None) -> bool:
        """Whether every timed launch gave the same outputs, and those that were verified if that is known."""
        if not self.deterministic or not self.checksums:
            return True
        sums = torch.stack(self.checksums)
        return bool((sums == (sums[0] if verified is None else verified)).all())


def rounded(timed: Mapping[str, Side]) -> dict[str, list[float]]:
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

    def run(self, sides: Sequence[Side], rounds: int) -> None:
        """Adds `rounds` samples to every side. Raises CudaError or RuntimeError when a launch faults."""
        for place in (p for s in sides for p in s.places):
            for _ in range(WARMUP):
                place.launch()
            place.wipe()
        visits: list[tuple[Side, Any, Any]] = []
        for r in range(rounds):
            visits += [self._visit(s, r) for s in there_and_back(sides, self._random)]
        torch.cuda.synchronize()
        for s in sides:
            times = [start.elapsed_time(end) for owner, start, end in visits if owner is s]
            s.samples += [(a + b) / 2 for a, b in zip(times[::2], times[1::2], strict=True)]

    def _visit(self, s: Side, turn: int) -> tuple[Side, Any, Any]:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        place = s.places[turn % len(s.places)]
        place.wipe()
        for _ in range(FLUSHES):
            self._flush.zero_()
        start.record()
        place.launch()
        end.record()
        if place.replay is not None and s.deterministic:
            s.checksums.append(checksum(place.replay.outputs))
        place.wipe()
        return s, start, end


def checksum(outputs: Sequence[Any]) -> Any:
    """A number on the GPU that depends on every bit of the outputs and on where it stands."""
    total = torch.zeros((), dtype=torch.int64, device=outputs[0].device)
    for o in outputs:
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
        total = total * 0x9E3779B1 + (piece * _weights(piece.numel(), str(words.device))).sum()
    return total


@cache
def _weights(count: int, device: str) -> Any:
    return torch.arange(count, device=device, dtype=torch.int64) * 2 + 1
