"""The tensor cores' arithmetic of one-byte floats: the error of a matmul that no fp8 kernel can avoid.

How tensor cores of Hopper and Ada add products of fp8 is in `fp8_sums.py`. Of 2048 products, with the sum promoted to
float32 every 128, that is a relative error of 1.3e-4, as measured on an H100. A float32 matmul errs 3e-7, which such a
kernel cannot reach.

A reference's matmuls of two fp8 tensors are computed in this way: by the tensor cores where torch can use them, else by
the formula. Scales that a reference multiplies in are kept apart: where they change along the sum, a kernel must leave
the tensor cores for float32, and so does this module. Other types and operations are torch's own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from pgo_agent.sandbox.fp8_sums import BITS, accumulated, cut
from pgo_agent.sandbox.imports import uncompiled
from torch.utils._python_dispatch import TorchDispatchMode

FP8 = tuple(getattr(torch, n) for n in dir(torch) if n.startswith(("float8_e4m3", "float8_e5m2")))
PERIODS = (2048, 1024, 512, 256, 128, 64, 32)  # lengths over which a scale may be constant, if not over the whole sum
SAME = 1e-6  # of a value: a float32 product of an fp8 number and its scale
_ALIGNED = 16  # torch._scaled_mm needs sizes that are multiples of it

# aten operations that only move elements: the bits of an fp8 tensor move in the same way.
_LAYOUT = {
    "view", "_unsafe_view", "t", "transpose", "permute", "expand", "slice", "select", "unsqueeze", "squeeze", "clone",
    "alias", "detach", "index_select", "index", "repeat", "split", "split_with_sizes", "unbind", "flip", "unfold",
    "gather", "_reshape_alias", "_reshape_copy", "constant_pad_nd", "cat",
}  # fmt: skip
_SCALING = {"mul", "div", "mul_", "div_"}


@dataclass(frozen=True)
class Narrow:
    """The fp8 numbers that a tensor was made of, in its shape."""

    bits: Any  # uint8
    dtype: Any

    def values(self) -> Any:
        return self.bits.view(self.dtype)


class TensorCores(TorchDispatchMode):  # type: ignore[misc]
    """Computes matmuls of fp8 tensors as tensor cores do, while it is entered. `used` counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.used = 0
        self.emulated = 0

    @property
    def summary(self) -> str:
        """The arithmetic, as recorded in evidence; empty where only torch's was used."""
        how = f", {self.emulated} of {self.used} matmuls by the formula" if self.emulated else ""
        return f"fp8 tensor core accumulation ({BITS + 1} bits{how})" if self.used else ""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Tell torch to leave the method below as it is."""
        return False

    @uncompiled
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = func._schema.name.partition("::")[2], kwargs or {}
        if name in ("mm", "bmm", "addmm", "baddbmm") and not kwargs:
            product = self._matmul(args[-2], args[-1])
            if product is not None:
                return product if name in ("mm", "bmm") else (args[0] + product).to(args[0].dtype)
        out = func(*args, **kwargs)
        _mark(name, func, args, kwargs, out)
        return out

    def _matmul(self, a: Any, b: Any) -> Any:
        """Return the product; None where the operands are not fp8 numbers."""
        of_a, of_b = _narrow(a), _narrow(b)
        if of_a is None or of_b is None:
            return None
        many = (a, b, of_a.bits, of_b.bits) if a.dim() == 3 else tuple(x[None] for x in (a, b, of_a.bits, of_b.bits))
        products = []
        for x, y, x_bits, y_bits in zip(*many, strict=True):
            product = self._multiply(x, y.t(), Narrow(x_bits, of_a.dtype), Narrow(y_bits.t(), of_b.dtype))
            if product is None:
                return None
            products.append(product)
        self.used += 1
        out = torch.stack(products) if a.dim() == 3 else products[0]
        return out.to(a.dtype)

    def _multiply(self, a: Any, b: Any, of_a: Narrow, of_b: Narrow) -> Any:
        """Return scaled (M, K) times (N, K) from their fp8 numbers; None where no scales explain the values."""
        k = a.shape[1]
        for period in (k, *(p for p in PERIODS if p < k)):
            left, right = _scales(a, of_a, period), _scales(b, of_b, period)
            if left is not None and right is not None:
                break
        else:
            return None
        total = torch.zeros(len(a), len(b), device=a.device)
        for j, at in enumerate(range(0, k, period)):
            x, y = (Narrow(n.bits[:, at : at + period], n.dtype) for n in (of_a, of_b))
            part = _by_hardware(x, y)
            if part is None:
                self.emulated += j == 0
                part = accumulated(x.values().float(), y.values().float())
            total += part * left[:, j, None] * right[None, :, j]
        return total


def of(device: Any, arch: int | None = None) -> TensorCores | None:
    """Return a new mode for this device's tensor cores; None where they add as float32.

    `arch`: the GPU that a CPU stands for, as compute capability x 10; None: none.
    """
    if torch.device(device).type == "cuda" and torch.version.hip is None:
        major, minor = torch.cuda.get_device_capability(device)
        arch = 10 * major + minor
    return TensorCores() if arch is not None and cut(arch) else None


def _by_hardware(a: Narrow, b: Narrow) -> Any:
    """Return (M, K) times (N, K) by the device's tensor cores; None where torch cannot use them."""
    if not a.bits.is_cuda:
        return None
    (m, k), n = a.bits.shape, len(b.bits)
    rows, columns, deep = (-x % _ALIGNED for x in (m, n, k))
    x = torch.nn.functional.pad(a.bits, (0, deep, 0, rows)).contiguous().view(a.dtype)
    y = torch.nn.functional.pad(b.bits, (0, deep, 0, columns)).contiguous().view(b.dtype)
    unscaled = torch.ones((), device=x.device)
    try:
        product = torch._scaled_mm(
            x, y.t(), scale_a=unscaled, scale_b=unscaled, out_dtype=torch.float32, use_fast_accum=True
        )
    except (RuntimeError, ValueError):
        return None  # not of these types, or not on this device
    return product[:m, :n]


def _scales(x: Any, of: Narrow, period: int) -> Any:
    """Return (rows, periods) the scales that give `x` from fp8 numbers, if constant over each period; else None."""
    raw = of.values().float()
    spare = -x.shape[1] % period
    wide, raw = (torch.nn.functional.pad(t.float(), (0, spare)).reshape(len(t), -1, period) for t in (x, raw))
    at = raw.abs().nan_to_num().argmax(2, keepdim=True)
    largest = raw.gather(2, at)
    scale = torch.where(largest == 0, 0.0, wide.gather(2, at) / torch.where(largest == 0, 1.0, largest))
    explained = (wide - raw * scale).abs() <= SAME * wide.abs()
    return scale[..., 0] if bool((explained | ~torch.isfinite(raw)).all()) else None


# which tensors come from fp8 ------------------------------------------------------------------------------------------


def _narrow(x: Any) -> Narrow | None:
    return getattr(x, "_pgo_narrow", None) if isinstance(x, torch.Tensor) else None


def _mark(name: str, func: Any, args: Sequence[Any], kwargs: Any, out: Any) -> None:
    """Note on a result which fp8 numbers it was made of; remove the note of what was overwritten."""
    if func._schema.is_mutable and name not in _SCALING:
        for x in args[:1]:
            if _narrow(x) is not None:
                x._pgo_narrow = None
        return
    if name in ("_to_copy", "to"):
        source = args[0]
        narrow = Narrow(source.view(torch.uint8), source.dtype) if source.dtype in FP8 else _narrow(source)
        noted = narrow if narrow is not None and out.dtype not in FP8 and out.is_floating_point() else None
        _note(out, noted)
    elif name in _LAYOUT:
        _moved(name, func, args, kwargs, out)
    elif name in _SCALING:
        _scaled(name, args, out)


def _moved(name: str, func: Any, args: Sequence[Any], kwargs: Any, out: Any) -> None:
    if name == "constant_pad_nd" and args[2:] not in ((), (0,), (0.0,)):
        return
    listed = list(args[0]) if name == "cat" else [args[0]]
    sources = [_narrow(x) for x in listed]
    bits = [n.bits for n in sources if n is not None]
    dtypes = {n.dtype for n in sources if n is not None}
    if len(bits) < len(listed) or len(dtypes) != 1:
        return
    (dtype,) = dtypes
    options = {k: v for k, v in kwargs.items() if k != "memory_format"}
    moved = func(bits if name == "cat" else bits[0], *args[1:], **options)
    for tensor, moved_bits in zip(out, moved, strict=True) if isinstance(out, list | tuple) else [(out, moved)]:
        _note(tensor, Narrow(moved_bits, dtype))


def _scaled(name: str, args: Sequence[Any], out: Any) -> None:
    first, second = _narrow(args[0]), _narrow(args[1])
    if first is not None and second is not None:
        _note(out, None)
        return
    source = first if name.startswith("div") or second is None else second
    if source is not None and out.is_floating_point():
        _note(out, Narrow(source.bits.expand(out.shape), source.dtype))


def _note(x: Any, narrow: Narrow | None) -> None:
    if narrow is not None or _narrow(x) is not None:
        x._pgo_narrow = narrow
