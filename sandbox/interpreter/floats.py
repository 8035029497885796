"""The float types that numpy lacks (bf16, fp8): their bits as numbers, and numbers as their bits.

Triton's interpreter stores them as unsigned integers, computes with those integers as if they were the numbers, and
cuts off what does not fit. Here every operation is done in float32, which holds them all, and then rounded to nearest
even, as in hardware. Sums, products and quotients of such numbers are then rounded as if once (24 bits are more than
twice 8 plus two). fp8 saturates at its largest finite value (PTX: cvt.rn.satfinite).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from pgo_agent.sandbox.interpreter.unsupported import Lacking

Array = Any  # numpy array
INTERPRETED = frozenset(
    {torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2}
)  # float types of tensors whose kernels can be interpreted faithfully


@dataclass(frozen=True)
class Format:
    """A binary float format."""

    bits: int  # of the significand, without the leading one
    least: int  # exponent of the smallest normal number
    most: float  # the largest finite number
    torch: torch.dtype


FP16 = Format(10, -14, 65504.0, torch.float16)
FORMATS = {
    "bf16": Format(7, -126, float(torch.finfo(torch.bfloat16).max), torch.bfloat16),
    "fp8e4nv": Format(3, -6, 448.0, torch.float8_e4m3fn),
    "fp8e5": Format(2, -14, 57344.0, torch.float8_e5m2),
}
_LACKING = ("fp8e4b15", "fp8e4b8", "fp8e5b16")
_VALUES = {
    n: torch.arange(256, dtype=torch.uint8).view(f.torch).to(torch.float32).numpy()
    for n, f in FORMATS.items()
    if n != "bf16"
}


def narrow(kind: Any) -> bool:
    """Whether numpy lacks a scalar type of Triton's. Raises Lacking for one that nothing here computes."""
    if kind.name in _LACKING:
        raise Lacking(f"the type {kind.name}")
    return kind.name in FORMATS


def numbers(data: Array, kind: Any) -> Array:
    """Return data of a type as numbers: float32 for a type that numpy lacks, else unchanged."""
    if not narrow(kind):
        return data
    if kind.name == "bf16":
        return (data.astype(np.uint32) << 16).view(np.float32)
    return _VALUES[kind.name][data]


def bits(values: Array, kind: Any, toward_zero: bool = False) -> Array:
    """Return numbers as data of a type that numpy lacks, rounded to nearest even (or toward zero)."""
    if kind.name == "bf16" and values.dtype == np.float32 and not toward_zero:
        return _bf16(values)
    form = FORMATS[kind.name]
    rounded = quantized(values, form, toward_zero)
    if kind.name == "bf16":
        return _bf16(rounded.astype(np.float32))
    rounded = np.clip(rounded, -form.most, form.most).astype(np.float32)
    return torch.from_numpy(np.ascontiguousarray(rounded)).to(form.torch).view(torch.uint8).numpy()


def _bf16(values: Array) -> Array:
    raw = values.view(np.uint32)
    rounded = (raw + (np.uint32(0x7FFF) + ((raw >> 16) & 1))) >> 16
    return np.where(np.isnan(values), np.uint32(0x7FFF), rounded).astype(np.uint16)


def quantized(values: Array, form: Format, toward_zero: bool = False) -> Array:
    """Round to the nearest numbers of a format (ties to even), as float64; above the largest: infinity."""
    wide = values.astype(np.float64)
    with np.errstate(all="ignore"):
        step = np.ldexp(1.0, np.maximum(np.frexp(wide)[1] - 1, form.least) - form.bits)
        near = (np.trunc if toward_zero else np.rint)(wide / step) * step
        beyond = np.abs(near) > form.most
        limit = np.where(np.isfinite(wide), form.most, np.inf) if toward_zero else np.inf
        return np.where(beyond, np.copysign(limit, wide), near)
