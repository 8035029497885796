"""A kernel as it stood, as a reference: what Triton's interpreter makes of it on host tensors."""

import subprocess
import sys

TEXT = """
import torch
import triton
import triton.language as tl
from triton.language.extra.libdevice import rsqrt

POWER: tl.constexpr = tl.constexpr(2)


@triton.jit
def raised(x):
    return x * x if POWER == 2 else x


@triton.jit
def _norm(X, W, Y, n, eps, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(X + row * n + i, i < n, 0.0).to(tl.float32)
    scale = rsqrt(tl.sum(raised(x), axis=0) / n + eps)
    tl.store(Y + row * n + i, (x * scale).to(tl.bfloat16) * tl.load(W + i, i < n, 0.0), i < n)


def norm(x, w, eps):
    y = torch.empty_like(x)
    _norm[(x.shape[0],)](x, w, y, x.shape[1], eps, BLOCK=128, num_warps=4)
    return y
"""
CODE = f"""
import torch
from pgo_agent.sandbox.interpreter import original
x, w = torch.randn(5, 100), torch.randn(100)
for kind in (torch.bfloat16, torch.float64):
    a, b = x.bfloat16().to(kind), w.bfloat16().to(kind)
    y = original.launcher({TEXT!r}, "norm", [a, b])(a, b, 1e-6)
    exact = torch.nn.functional.rms_norm(a.double(), (100,), b.double(), 1e-6)
    print(str(y.dtype) == str(kind), float((y.double() - exact).abs().max()))
"""


def test_bf16_is_computed_as_such_and_float64_exactly_though_the_text_names_shorter_floats() -> None:
    """In a process of its own: what the interpreter computes with is replaced for good."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    (right, rounded), (same, exact) = (line.split() for line in done.stdout.splitlines())
    assert (right, same) == ("True", "True")
    assert 1e-4 < float(rounded) < 0.1
    assert float(exact) < 1e-12
