"""How tensor cores add products of one-byte floats: a formula, for the judge and for Triton's interpreter.

Tensor cores of Hopper and Ada add products of fp8 in fixed point: 32 at a time, with the sum so far, all shifted to the
largest exponent among them; of each the leading 14 bits are kept and the rest is cut off. Sources: DeepSeek-V3
Technical Report, 3.3.2 and 3.5.2 (14 bits of each product, shifted to the largest exponent, then cut off);
SageAttention2, 3.2 (the accumulator of mma(f32f8f8f32) has 13 bits behind the leading one).
"""

from typing import Any

import torch

GROUP, BITS = 32, 13  # products of one instruction; bits behind the leading one that are kept
AT_A_TIME = 1 << 26  # products held at a time


def cut(arch: int) -> bool:
    """Return whether the tensor cores of a compute capability (x 10) cut off."""
    return arch in (89, 90)


def accumulated(a: Any, b: Any, group: int = GROUP, bits: int = BITS, total: Any = None) -> Any:
    """Return (M, K) times (N, K) of fp8 values, added as tensor cores do to `total` or to zero: (M, N) in float32."""
    begun = torch.zeros(len(a), len(b), device=a.device) if total is None else total
    rows = max(1, AT_A_TIME // (len(b) * group))
    return torch.cat([_added(x, b, group, bits, t) for x, t in zip(a.split(rows), begun.split(rows), strict=True)])


def _added(a: Any, b: Any, group: int, bits: int, total: Any) -> Any:
    ones = torch.ones_like(total)
    for at in range(0, a.shape[1], group):
        x, y = a[:, None, at : at + group], b[None, :, at : at + group]
        top = torch.maximum((_exponents(x) + _exponents(y)).amax(2), _exponents(total))
        unit = torch.ldexp(ones, top - bits)
        leading = (x * y / unit[..., None]).trunc().sum(2) + (total / unit).trunc()
        mantissa, exponent = torch.frexp(leading * unit)
        total = torch.ldexp((mantissa * 2 ** (bits + 1)).trunc(), exponent - bits - 1)
    return total


def _exponents(x: Any) -> Any:
    """Return exponents of numbers written as 1.xxx times a power of two; -100 for zero."""
    return torch.where(x == 0, -100, torch.frexp(x)[1] - 1)
