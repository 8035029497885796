"""Kernels of a small model, which `record.py` launches to make a trace."""

import torch
import triton
import triton.language as tl

LIMIT: tl.constexpr = tl.constexpr(30.0)


@triton.jit
def capped(x):
    return tl.minimum(tl.maximum(x, -LIMIT), LIMIT)


@triton.jit
def _norm(X, W, Y, R, stride, n, eps, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(X + row * stride + i, i < n, 0.0).to(tl.float32)
    r = 1 / tl.sqrt(tl.sum(x * x) / n + eps)
    tl.store(R + row, r)
    tl.store(Y + row * stride + i, capped(x * r) * tl.load(W + i, i < n, 0.0), i < n)


def _configs():
    return [triton.Config({"BLOCK_M": m, "BLOCK_N": 32, "BLOCK_K": 32}, num_warps=4, num_stages=3) for m in (64, 32)]


@triton.autotune(configs=_configs(), key=["M", "N", "K"])
@triton.jit
def _product(
    A, B, C, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        a = tl.load(A + m[:, None] * stride_am + k[None, :] * stride_ak, (m[:, None] < M) & (k[None, :] < K), 0.0)
        b = tl.load(B + k[:, None] * stride_bk + n[None, :] * stride_bn, (k[:, None] < K) & (n[None, :] < N), 0.0)
        acc += tl.dot(a, b)
    tl.store(C + m[:, None] * stride_cm + n[None, :] * stride_cn, acc, (m[:, None] < M) & (n[None, :] < N))


@triton.jit
def _count(I, OUT, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(OUT + tl.load(I + i, i < n, 0), 1.0, i < n)


@triton.jit
def _decay(P, G, n, rate, step, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    p = tl.load(P + i, i < n)
    tl.store(P + i, p - rate * tl.load(G + i, i < n) / step, i < n)


def norm(x, w):
    y, r = torch.empty_like(x), torch.empty(x.shape[0], device=x.device, dtype=torch.float32)
    _norm[(x.shape[0],)](x, w, y, r, x.stride(0), x.shape[1], 1e-6, BLOCK=triton.next_power_of_2(x.shape[1]))
    return y


def product(a, b):
    c = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
    M, N, K = a.shape[0], b.shape[1], a.shape[1]
    _product[lambda meta: (triton.cdiv(M, meta["BLOCK_M"]), triton.cdiv(N, meta["BLOCK_N"]))](
        a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride()
    )
    return c


def step(batch, hidden, number):
    """One step of the model's training."""
    x = torch.randn(batch, hidden, device="cuda", dtype=torch.float16)
    w = torch.randn(4 * hidden, hidden, device="cuda", dtype=torch.float16)
    product(norm(x, torch.randn(hidden, device="cuda", dtype=torch.float16)), w.t())
    tokens = torch.randint(0, 1000, (batch,), device="cuda")
    _count[(triton.cdiv(batch, 256),)](tokens, torch.zeros(1000, device="cuda"), batch, BLOCK=256)
    p, g = torch.randn(hidden * 100, device="cuda"), torch.randn(hidden * 100, device="cuda")
    _decay[(triton.cdiv(p.numel(), 1024),)](p, g, p.numel(), 0.1, number, BLOCK=1024)
