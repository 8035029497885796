"""A product of two matrices by a kernel that may use too few registers: it spills, and moves know what cures that."""

import torch
import triton
import triton.language as tl


@triton.jit
def _product(x_ptr, y_ptr, z_ptr, M, N, K, TILE: tl.constexpr, STEP: tl.constexpr):
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    cols = tl.program_id(1) * TILE + tl.arange(0, TILE)
    steps = tl.arange(0, STEP)
    acc = tl.zeros([TILE, TILE], tl.float32)
    for k in range(0, K, STEP):
        x = tl.load(x_ptr + rows[:, None] * K + (k + steps)[None, :])
        y = tl.load(y_ptr + (k + steps)[:, None] * N + cols[None, :])
        acc = tl.dot(x, y, acc)
    tl.store(z_ptr + rows[:, None] * N + cols[None, :], acc.to(tl.float16))


def kernel(x, y):
    (M, K), N = x.shape, y.shape[1]
    z = torch.empty((M, N), device=x.device, dtype=x.dtype)
    _product[(M // 128, N // 128)](x, y, z, M, N, K, TILE=128, STEP=32, num_warps=4, num_stages=2, maxnreg=96)
    return z


def reference(x, y):
    return x @ y


def inputs(case, generator):
    shapes = (case["M"], case["K"]), (case["K"], case["N"])
    x, y = (torch.randn(s, generator=generator, device=generator.device, dtype=torch.float32) for s in shapes)
    return {"x": x.to(torch.float16), "y": y.to(torch.float16)}


CASES = {"2k": dict(M=2048, N=2048, K=2048)}
SMALL = {"one-tile": dict(M=128, N=128, K=64)}
HELD_OUT = {"wide": dict(M=128, N=256, K=64)}
LAUNCH_SPACE = {"num_warps": [4]}


def flops(case):
    return 2 * case["M"] * case["N"] * case["K"]


def bytes_moved(case):
    return 2 * (case["M"] * case["K"] + case["K"] * case["N"] + case["M"] * case["N"])
