"""Which kernel of a launcher does most of the work, by its plans and the static profiles of its builds.

Kernels are ordered by tensor flops of a step of the hot loop times blocks; then by the bytes of the tensors that a
launch is given, as far as it can move them; then by instructions issued. Loops whose counts only a run knows are
counted once. This orders the kernels of one launcher; it is no estimate of time.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pgo_agent.sandbox.bundle.schema import ITEMSIZE

LANES, WIDEST = 32, 16  # threads of a warp, and bytes that each of them moves with one instruction
Work = tuple[float, float, float]  # tensor flops, bytes, instructions


def hardest(
    plans: Iterable[Mapping[str, Any]],
    kernels: Mapping[str, Mapping[str, Any]],
    statics: Mapping[str, Mapping[str, Any]],
) -> list[str]:
    """Return the names of the kernels that plans launch, those that do most work first.

    `kernels`: those of the plans' bundle; `statics`: their static profiles, both by the keys of their builds.
    """
    total = dict[str, Work]()
    for step in (s for plan in plans for s in plan["steps"] if "kernel" in s):
        kernel = kernels[step["kernel"]]
        own = _work(step, statics[step["kernel"]], kernel["num_warps"])
        flops, moved, issued = (a + b for a, b in zip(total.get(kernel["name"], (0, 0, 0)), own, strict=True))
        total[kernel["name"]] = (flops, moved, issued)
    return sorted(total, key=lambda name: total[name], reverse=True)


def _work(step: Mapping[str, Any], static: Mapping[str, Any], warps: int) -> Work:
    blocks, sizes = math.prod(step["grid"]), dict[int, int]()
    for tensor in _tensors(step["args"]):
        nbytes = math.prod(tensor["size"]) * ITEMSIZE[tensor["dtype"]]
        sizes[tensor["t"]] = max(sizes.get(tensor["t"], 0), nbytes)
    issued = static["sass"]["all"] * blocks * warps
    most = math.inf if static["sass"].get("loop") else issued * LANES * WIDEST
    return static["loop_flops"] * blocks, min(sum(sizes.values()), most), issued


def _tensors(args: object) -> Iterator[Mapping[str, Any]]:
    if isinstance(args, Mapping):
        if "t" in args:
            yield args
        args = list(args.values())
    if isinstance(args, list | tuple):
        for a in args:
            yield from _tensors(a)
