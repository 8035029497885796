"""How far traced launches are from what the GPU could reach: bytes over bandwidth, flops over the tensor cores' rate.

Both are estimates by shapes: bytes of the tensors that a kernel reads, and of those that it writes, each once; flops of
a product of matrices or of attention, where the kernel multiplies tiles. A part of the roof is given where the time was
measured.
"""

from collections.abc import Sequence
from itertools import combinations

from pgo_agent.agent.commands.traces.events import TracedTensor
from pgo_agent.agent.commands.traces.summary import Kernel, Signature
from pgo_agent.sandbox.devices import Device

MATRIX, ATTENTION = 2, 4  # ranks


def seconds(one: Signature, device: Device, kernel: Kernel) -> float:
    """Return the least time of one launch, by estimate."""
    moved = one.traffic(kernel.uses) / (device.gbps * 1e9)
    return max(moved, flops(_tensors(one)) / (device.fp16_tflops * 1e12)) if kernel.dots else moved


def reached(kernel: Kernel, device: Device) -> float | None:
    """Return the part of its roof that a kernel reached, by estimate; None where its time was not measured, or some
    launches have no arguments."""
    counted = sum(s.launches for s in kernel.signatures.values())
    if not kernel.ms or not counted or kernel.trials:
        return None
    least = sum(s.launches * seconds(s, device, kernel) for s in kernel.signatures.values())
    return min(1.0, 1000 * least * kernel.launches / counted / kernel.ms)


def flops(tensors: Sequence[TracedTensor]) -> float:
    """Return the arithmetic of the largest product of matrices, or of attention, that the shapes allow; 0 for none."""
    floats = [t for t in tensors if "int" not in t.dtype and t.dtype != "bool"]
    four = [t.shape for t in floats if len(t.shape) == ATTENTION]
    if len(four) > MATRIX:
        (b, h, s, d), (_, _, other, _) = four[:2]
        return 4.0 * b * h * s * other * d
    matrices = [t.shape for t in floats if len(t.shape) == MATRIX]
    return max((_product(x, y, matrices) for x, y in combinations(matrices, 2)), default=0.0)


def _product(one: tuple[int, ...], other: tuple[int, ...], results: Sequence[tuple[int, ...]]) -> float:
    for i, j in ((1, 0), (1, 1), (0, 0), (0, 1)):
        if one[i] == other[j] and (one[1 - i], other[1 - j]) in results:
            return 2.0 * one[0] * one[1] * other[1 - j]
    return 0.0


def _tensors(one: Signature) -> list[TracedTensor]:
    return [v for v in one.first.arguments.values() if isinstance(v, TracedTensor)]
