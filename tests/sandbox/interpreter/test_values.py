"""What Triton's interpreter computes here is what the compiled code computes: bf16, fp8, NaN, dots, integers.

One real interpreter process runs every kernel of KERNELS on the same numbers; PyTorch says what bf16 and fp8 come to.
"""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.sandbox.interpreting import interpreted

N = 4096
EACH = {  # of x and y of a type, element by element; a function of PyTorch's that gives the same
    "sums": ("x + y", lambda x, y: x + y),
    "differences": ("x - y", lambda x, y: x - y),
    "products": ("x * y", lambda x, y: x * y),
    "quotients": ("x / y", lambda x, y: x.float() / y.float()),
    "fused multiply-adds": ("tl.fma(x, y, x)", lambda x, y: (x.double() * y.double() + x.double()).to(x.dtype)),
    "a product with a constant": ("x * 0.3", lambda x, y: x * torch.tensor(0.3).to(x.dtype)),
    "comparisons": ("(x < y).to(tl.float32)", lambda x, y: (x < y).float()),
    "choices": ("tl.where(x > y, x, y * 2)", lambda x, y: torch.where(x > y, x, y * 2)),
    "absolute values": ("tl.abs(x)", lambda x, y: x.abs()),
    "negatives": ("-x", lambda x, y: -x + 0),
    "in float32": ("x.to(tl.float32) * 3", lambda x, y: x.float() * 3),
    "back from float32": ("(x.to(tl.float32) * 1.001).to(x.dtype)", lambda x, y: (x.float() * 1.001).to(x.dtype)),
    "integers": ("(x * 100).to(tl.int32)", lambda x, y: (x * 100).to(torch.int32)),
    "of integers": ("(tl.arange(0, 4096) * 37).to(x.dtype)", lambda x, y: (torch.arange(N) * 37).to(x.dtype)),
    "maxima": ("tl.maximum(x, y)", lambda x, y: torch.fmax(x, y)),
    "maxima with NaN": (
        "tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)",
        lambda x, y: torch.maximum(x, y),
    ),
    "clamped": (
        "tl.clamp(x, -0.5, 0.5)",
        lambda x, y: torch.fmin(torch.fmax(x, torch.tensor(-0.5)), torch.tensor(0.5)),
    ),
}
KERNEL = """
@triton.jit
def k{n}(X, Y, Z, N: tl.constexpr):
    i = tl.arange(0, N)
    x, y = tl.load(X + i), tl.load(Y + i)
    tl.store(Z + i, {value})

"""
CASTS = {"float8_e4m3fn": "tl.float8e4nv", "float8_e5m2": "tl.float8e5"}


def numbers(dtype: torch.dtype) -> tuple[Any, Any]:
    """Of many sizes, with NaN, infinities and subnormal ones among them."""
    generator = torch.Generator().manual_seed(5)
    x, y = (torch.randn(N, generator=generator) * 2.0 ** torch.randint(-6, 7, (N,), generator=generator) for _ in "xy")
    x[:6] = torch.tensor([torch.nan, torch.inf, -torch.inf, 1e-39, 3.3e38, 0.0])
    y[3:9] = torch.tensor([1e-39, 3.3e38, -0.0, torch.nan, 1.0, -torch.inf])
    return x.to(dtype), y.to(dtype)


def same(found: Any, wanted: Any) -> Any:
    """Bit by bit, but for which NaN it is."""
    return (found == wanted) | (found.isnan() & wanted.isnan())


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_arithmetic_of_16_bit_floats_is_pytorchs_bit_by_bit(kind: str, tmp_path: Path) -> None:
    x, y = numbers(getattr(torch, kind))
    wanted = {what: want(x, y) for what, (_, want) in EACH.items()}
    kernels = "".join(KERNEL.format(n=n, value=value) for n, (value, _) in enumerate(EACH.values()))
    types = [str(w.dtype) for w in wanted.values()]
    body = "".join(
        f"    z{n} = torch.empty({N}, dtype={t}, device=x.device)\n    k{n}[(1,)](x, y, z{n}, {N})\n"
        for n, t in enumerate(types)
    )
    outputs = ", ".join(f"z{n}" for n in range(len(types)))
    found = interpreted(tmp_path, f"{kernels}\ndef kernel(x, y):\n{body}    return {outputs}\n", x=x, y=y)
    finite = x.float().abs() < 1e6  # others become the nearest integer here: PyTorch has other ones
    wrong = {
        what: int((~same(f, w) & (finite | (w.dtype != torch.int32))).sum())
        for f, (what, w) in zip(found, wanted.items(), strict=True)
    }
    assert not any(wrong.values()), wrong


FP8 = """
@triton.jit
def cast(X, Z, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(Z + i, tl.load(X + i).to(Z.dtype.element_ty))


def kernel(x, narrow):
    back = torch.empty_like(x)
    cast[(1,)](x, narrow, 4096)
    cast[(1,)](narrow, back, 4096)
    return narrow.view(torch.uint8), back
"""


@pytest.mark.parametrize("kind", CASTS)
@pytest.mark.parametrize("wide", ["float32", "bfloat16", "float16"])
def test_fp8_is_rounded_to_nearest_even_and_saturates(kind: str, wide: str, tmp_path: Path) -> None:
    dtype = getattr(torch, kind)
    most = torch.finfo(dtype).max
    x = numbers(getattr(torch, wide))[0]
    narrow, back = interpreted(tmp_path, FP8.replace("(x, narrow):", "(x):\n    narrow = NEW").replace(
        "NEW", f"torch.empty(4096, dtype=torch.{kind}, device=x.device)"), x=x)  # fmt: skip
    wanted = torch.where(x.isnan(), x.float(), x.float().clamp(-most, most)).to(dtype)
    assert same(narrow.view(dtype).float(), wanted.float()).all()
    assert same(back, wanted.float().to(x.dtype)).all()


DOT = """
@triton.jit
def dot(A, B, C, N: tl.constexpr, HOW: tl.constexpr, HALF: tl.constexpr):
    i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    a, b = tl.load(A + i * N + j), tl.load(B + i * N + j)
    if HALF:
        c = tl.dot(a.to(tl.float16), b.to(tl.float16), out_dtype=tl.float16)
    else:
        c = tl.dot(a, b, input_precision=HOW)
    tl.store(C + i * N + j, c)


def kernel(a, b):
    outs = [torch.empty_like(a) for _ in range(4)]
    for out, how in zip(outs, ("tf32", "bf16x3", "ieee", "ieee")):
        dot[[1]](a, b, out, 64, how, out is outs[3])
    narrow = torch.empty_like(a)
    dot[(1,)](a.to(torch.bfloat16), b.to(torch.bfloat16), narrow, 64, "ieee", False)
    return (*outs, narrow)
"""


def test_dots_err_as_much_as_their_precision_says(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(3)
    a, b = (torch.randn(64, 64, generator=generator) for _ in "ab")
    exact = a.double() @ b.double()
    tf32, parts, ieee, half, bf16 = interpreted(tmp_path, DOT, a=a, b=b)
    errors = [float((c - exact).abs().mean()) for c in (tf32, parts, ieee, half, bf16)]
    assert 1e-3 < errors[0] < 1e-2 and 1e-6 < errors[1] < 1e-4 and errors[2] < 1e-6, errors
    plain = (a.half().float() @ b.half().float()).half().double()
    assert errors[3] > 1.2 * float((plain - exact).abs().mean()), "an accumulator of fp16 is rounded several times"
    assert torch.allclose(bf16, a.bfloat16().float() @ b.bfloat16().float(), atol=1e-4)


NARROW = """
@triton.jit
def narrow(A, B, C, OFTEN: tl.constexpr):
    i, k = tl.arange(0, 64)[:, None], tl.arange(0, 128)
    c = tl.zeros([64, 64], tl.float32)
    for at in range(0, 2048, 128):
        a, b = tl.load(A + i * 2048 + at + k[None, :]), tl.load(B + tl.arange(0, 64)[None, :] * 2048 + at + k[:, None])
        if OFTEN:
            c += tl.dot(a, b)
        else:
            c = tl.dot(a, b, c)
    tl.store(C + i * 64 + tl.arange(0, 64)[None, :], c)


def kernel(a, b):
    outs = [torch.empty(64, 64, device=a.device) for _ in range(2)]
    for out in outs:
        narrow[(1,)](a, b, out, out is outs[0])
    return outs[0], outs[1]
"""


def test_fp8_products_err_as_on_hopper_and_less_where_they_are_promoted(tmp_path: Path) -> None:
    """1.3e-4 of 2048 products that are promoted every 128 was measured on an H100."""
    generator = torch.Generator().manual_seed(3)
    a, b = (torch.randn(64, 2048, generator=generator).mul(100).to(torch.float8_e4m3fn) for _ in "ab")
    exact = a.double() @ b.double().T
    often, once = (float((c - exact).norm() / exact.norm()) for c in interpreted(tmp_path, NARROW, a=a, b=b))
    assert 0.9e-4 < often < 1.8e-4 and once > 3 * often, (often, once)


SCALED = """
@triton.jit
def scaled(A, SA, B, SB, C):
    i, j, k = tl.arange(0, 32), tl.arange(0, 32), tl.arange(0, 64)
    a = tl.load(A + i[:, None] * 64 + k[None, :])
    b = tl.load(B + tl.arange(0, 32)[:, None] * 32 + j[None, :])
    sa, sb = (tl.load(S + i[:, None] * 2 + tl.arange(0, 2)[None, :]) for S in (SA, SB))
    tl.store(C + i[:, None] * 32 + j[None, :], tl.dot_scaled(a, sa, "e4m3", b, sb, "e2m1"))


def kernel(a, sa, b, sb):
    c = torch.empty(32, 32, device=a.device)
    scaled[(1,)](a, sa, b, sb, c)
    return c
"""


def test_scaled_dots_are_those_of_the_values_times_their_scales(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(3)
    a = torch.randn(32, 64, generator=generator).to(torch.float8_e4m3fn)
    b = torch.randint(0, 256, (32, 32), generator=generator, dtype=torch.uint8)  # two values of K in a byte
    sa, sb = (torch.randint(120, 135, (32, 2), generator=generator, dtype=torch.uint8) for _ in "ab")
    (found,) = interpreted(tmp_path, SCALED, a=a, sa=sa, b=b, sb=sb)
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float64)
    wide = torch.stack([values[(b & 15).long()], values[(b >> 4).long()]], 1).reshape(64, 32)
    x = a.double() * 2.0 ** (sa.double() - 127).repeat_interleave(32, 1)
    y = wide * 2.0 ** (sb.double() - 127).repeat_interleave(32, 1).T
    assert torch.allclose(found.double(), x @ y, rtol=1e-5)


REDUCED = """
@triton.jit
def reduced(X, V, I, S):
    x = tl.load(X + tl.arange(0, 8)[:, None] * 128 + tl.arange(0, 128)[None, :])
    i = tl.arange(0, 8)
    tl.store(V + i, tl.max(x, 1))
    tl.store(I + i, tl.argmax(x, 1))
    tl.store(S + i, tl.sum(x.to(tl.bfloat16), -1))


@triton.jit
def logical(X, Z):
    x = tl.load(X + tl.arange(0, 128))
    tl.store(Z + tl.arange(0, 128), ((x > 0) and not (x > 1)).to(tl.int32))


def kernel(x):
    v, i, s = (torch.empty(8, dtype=t, device=x.device) for t in (torch.float32, torch.int32, torch.bfloat16))
    z = torch.empty(128, dtype=torch.int32, device=x.device)
    reduced[(1,)](x, v, i, s)
    logical[(1,)](x, z)
    return v, i, s, z
"""


def test_reductions_drop_nan_find_the_leftmost_maximum_and_round_sums_of_bf16(tmp_path: Path) -> None:
    x = torch.randint(-3, 4, (8, 128), generator=torch.Generator().manual_seed(3)).float()
    plain = x.clone()
    x[2, 5] = torch.nan
    v, i, s, z = interpreted(tmp_path, REDUCED, x=x)
    assert torch.equal(v, plain.amax(1)) and torch.equal(i[:2].long(), plain.argmax(1)[:2])
    assert s[2].isnan() and torch.equal(s[3:].float(), plain.sum(1)[3:])
    assert torch.equal(z.bool(), (plain[0] > 0) & ~(plain[0] > 1))
