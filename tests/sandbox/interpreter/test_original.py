"""A kernel as it stood, as a reference: what Triton's interpreter makes of it on host tensors."""

import pytest

from tests.sandbox import forked_python

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
    done = forked_python.ran(CODE)
    assert done.returncode == 0, done.stderr
    (right, rounded), (same, exact) = (line.split() for line in done.stdout.splitlines())
    assert (right, same) == ("True", "True")
    assert 1e-4 < float(rounded) < 0.1
    assert float(exact) < 1e-12


TUNED = """
import torch
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"STEP": 1}), triton.Config({"STEP": 8})], key=["n"])
@triton.jit
def _count(X, n, STEP: tl.constexpr):
    tl.atomic_add(X + tl.program_id(0), STEP)


def count(x):
    _count[(x.numel(),)](x, x.numel())
    return x
"""


def test_of_an_autotuned_one_the_first_configuration_is_launched_once() -> None:
    counted = f'original.launcher({TUNED!r}, "count", [x])(x).tolist()'
    done = forked_python.ran(
        f"import torch\nfrom pgo_agent.sandbox.interpreter import original\nx = torch.zeros(3)\nprint({counted})"
    )
    assert done.stdout.strip() == "[1.0, 1.0, 1.0]", done.stderr


SUMS = """
import torch
import triton
import triton.language as tl


@triton.jit
def _sums(X, W, Y, n, BLOCK: tl.constexpr):
    total, most = 0.0, tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    worst = float("-inf")
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        x = tl.load(X + i[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :])
        most += tl.dot(x, x)
        worst = tl.maximum(worst, tl.max(x))
        total += tl.sum(x)
    tl.store(Y, (total + worst + tl.sum(most)).to(tl.float16))


def sums(x):
    y = torch.empty(1, device=x.device, dtype=torch.float16)
    _sums[(1,)](x, x, y, x.shape[0], BLOCK=16, num_stages=3)
    return y
"""
ON_A_GPU = f"""
import torch
from pgo_agent.sandbox import devices
from pgo_agent.sandbox.interpreter import original
from pgo_agent.sandbox.tracer import fake_cuda_api, fake_gpu
from pgo_agent.sandbox.tracer.capture_ttgir import Capture
capture, kinds = Capture(full=False), []
def launched(launcher, grid, handle, args):
    kinds.append([k for k in launcher.src.signature.values() if k.startswith("*")])
parts = fake_cuda_api.Refusals(), fake_gpu.Addresses()
fake_gpu.install(devices.find("h100"), *parts, launched, capture.resources)
capture.install()
with fake_gpu.FakeMode(allow_non_fake_inputs=True):
    for kind in (torch.float16, torch.float64):
        x = torch.randn(64, 16, device="cuda").to(kind)
        print(original.launcher({SUMS!r}, "sums", [x])(x).dtype, *kinds[-1])
"""


def test_for_float64_it_compiles_where_sums_begin_with_a_number() -> None:
    """A number that is written down is fp32 for Triton's compiler, and a loop may not change a type."""
    done = forked_python.ran(ON_A_GPU)
    assert done.stdout.splitlines() == ["torch.float16 *fp16 *fp16 *fp16", "torch.float64 *fp64 *fp64 *fp64"], (
        done.stderr
    )


@pytest.mark.slow
def test_a_tile_that_float64_makes_too_large_is_halved_where_that_is_allowed_and_else_it_fails() -> None:
    """`_sums` in a grid of its own, with tiles whose float64 takes more shared memory than an H100 has."""
    text = SUMS.replace("range(0, n, BLOCK)", "range(tl.program_id(0) * BLOCK, n, BLOCK)")
    text = text.replace("_sums[(1,)]", '_sums[lambda meta: (triton.cdiv(x.shape[0], meta["BLOCK"]),)]')
    code = ON_A_GPU.replace(repr(SUMS), repr(text.replace("BLOCK=16", "BLOCK=128"))).replace("(64, 16,", "(1024, 128,")
    code = code.replace("full=False", "full=True").replace("kinds.append(", "kinds.append([str(grid[0])]); (")
    assert code.count("[x])(x)") == 1
    for tiles, grids in (("", ["8"]), (', ["BLOCK"]', ["8", "16"])):
        given = code.replace("[x])(x)", f"[x]{tiles})(x)")
        done = forked_python.ran(given)
        assert [line.split()[1] for line in done.stdout.splitlines()] == grids, done.stderr
        assert ("OutOfResources" in done.stderr) == (not tiles)
