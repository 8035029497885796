"""A target of the mutants: the backward pass of an RMS norm, with partial sums of dW that the host adds up.

Every program takes ROWS rows; R holds the reciprocal root of each row, as the forward pass leaves it.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _norm_bwd(DY, X, W, R, DX, DW, stride, M, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    w = tl.load(W + i, mask=i < N, other=0.0)
    dw = tl.zeros((BLOCK,), tl.float32)
    for k in range(ROWS):
        row = tl.program_id(0) * ROWS + k
        keep = (i < N) & (row < M)
        x = tl.load(X + row * stride + i, mask=keep, other=0.0)
        dy = tl.load(DY + row * N + i, mask=keep, other=0.0)
        r = tl.load(R + row, mask=row < M, other=0.0)
        xh = x * r
        dw += dy * xh
        m = dy * w
        tl.store(DX + row * N + i, r * (m - xh * (tl.sum(m * xh, 0) / N)), mask=keep)
    tl.store(DW + tl.program_id(0) * N + i, dw, mask=i < N)


def kernel(dy, x, w, r):
    M, N = x.shape
    blocks = triton.cdiv(M, 4)
    dx = torch.empty((M, N), device=x.device, dtype=torch.float32)
    dw = torch.empty((blocks, N), device=x.device, dtype=torch.float32)
    block = triton.next_power_of_2(N)
    _norm_bwd[(blocks,)](dy, x, w, r, dx, dw, x.stride(0), M, N, ROWS=4, BLOCK=block, num_warps=4)
    return dx, dw.sum(0)


def reference(dy, x, w, r):
    xh = x * r[:, None]
    m = dy * w
    return r[:, None] * (m - xh * (m * xh).mean(-1, keepdim=True)), (dy * xh).sum(0)


def inputs(case, generator):
    def tensor(*shape):
        return torch.randn(shape, generator=generator, device=generator.device, dtype=torch.float32)

    rows, cols = case["rows"], case["cols"]
    x = tensor(rows, cols + case["gap"])[:, :cols]
    return {"dy": tensor(rows, cols), "x": x, "w": 1 + 0.1 * tensor(cols), "r": torch.rsqrt(x.square().mean(-1) + 1e-6)}


CASES = {"4k": dict(rows=4096, cols=4096, gap=0)}
SMALL = {"even": dict(rows=8, cols=256, gap=0), "ragged": dict(rows=7, cols=200, gap=8)}
HELD_OUT = {"ragged": dict(rows=333, cols=1501, gap=3)}
TOLERANCE = {"max_ratio": 4.0, "mean_ratio": 4.0}  # sums over rows in another order than torch's
LAUNCH_SPACE = {"num_warps": [4]}


def flops(case):
    return 10 * case["rows"] * case["cols"]


def bytes_moved(case):
    return 12 * case["rows"] * case["cols"]
