"""Makes shapes smaller that the GPU here cannot hold with what a check needs: the same in float64, and the results."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pgo_agent.agent.commands.traces.events import TracedTensor

COPIES = 2  # of all tensors in float64, and what a reference needs beside
LEAST = 256  # a size is not made smaller than this


@dataclass(frozen=True)
class Scaled:
    """Tensors with smaller sizes, and what became of each size."""

    tensors: Mapping[str, TracedTensor]
    sizes: Mapping[int, int]  # that were changed


def scaled(tensors: Mapping[str, TracedTensor], memory: int) -> Scaled:
    """Return tensors that fit into so many bytes of a GPU: the largest size is halved, wherever it is one, until they
    do; as they are where they fit, or where no size is left to halve."""
    sizes, now = dict[int, int](), dict(tensors)
    while _needed(now) > memory:
        largest = max((n for t in now.values() for n in t.shape), default=0)
        if largest < 2 * LEAST:
            break
        half = largest // 2
        sizes = {n: half if s == largest else s for n, s in sizes.items()}
        sizes |= {largest: half} if largest in {n for t in tensors.values() for n in t.shape} else {}
        now = {n: _with(t, largest, half) for n, t in now.items()}
    return Scaled(now, sizes)


def _needed(tensors: Mapping[str, TracedTensor]) -> int:
    return COPIES * 8 * sum(math.prod(t.shape) for t in tensors.values())


def _with(t: TracedTensor, size: int, other: int) -> TracedTensor:
    """Return a tensor with another size in place of one, its elements as close together as before."""
    shape = tuple(other if n == size else n for n in t.shape)
    strides, step = [0] * len(shape), 1
    for i in sorted(range(len(shape)), key=lambda i: (t.stride[i], -i)):
        strides[i] = step if t.stride[i] else 0
        step *= shape[i] if t.stride[i] else 1
    return replace(t, shape=shape, stride=tuple(strides))
