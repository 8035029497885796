"""C = A B^T of fp8 numbers with block scales: one of A for 128 of a row, one of B for a block of 128 by 128.

The tensor cores add 128 products, then the sum is promoted to float32 with its scales, as such GEMMs are written for
training in fp8. A is [M, K] and B [N, K], both row-major; K is a multiple of 128; M and N are any. 36 configurations,
among them some whose tiles are too small for the warp-group instruction.
"""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": 128}, num_warps=8, num_stages=stages)
    for m in (16, 32, 64)
    for n in (32, 64, 128)
    for stages in (3, 4, 5, 6)
]


@triton.autotune(configs=CONFIGS, key=["N", "K"])
@triton.jit
def _fp8_gemm(
    A, B, C, SA, SB, M, N: tl.constexpr, K: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    steps = tl.cdiv(K, BLOCK_K)
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_m, offs_n, offs_k = rows % M, columns % N, tl.arange(0, BLOCK_K)
    a_ptrs = A + offs_m[:, None] * K + offs_k[None, :]
    b_ptrs = B + offs_n[None, :] * K + offs_k[:, None]
    sa_ptrs = SA + offs_m * steps
    sb_ptrs = SB + offs_n // BLOCK_K * steps
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for step in range(steps):
        left = K - step * BLOCK_K
        a = tl.load(a_ptrs, mask=offs_k[None, :] < left, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < left, other=0.0)
        acc += tl.dot(a, b) * tl.load(sa_ptrs)[:, None] * tl.load(sb_ptrs)[None, :]
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K
        sa_ptrs += 1
        sb_ptrs += 1
    c_ptrs = C + rows[:, None] * N + columns[None, :]
    tl.store(c_ptrs, acc, mask=(rows[:, None] < M) & (columns[None, :] < N))


def kernel(a, b, sa, sb):
    M, K = a.shape
    N = b.shape[0]
    c = torch.empty((M, N), device=a.device, dtype=torch.float32)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]), triton.cdiv(N, meta["BLOCK_N"]))  # noqa: E731
    _fp8_gemm[grid](a, b, c, sa, sb, M, N, K)
    return c


def reference(a, b, sa, sb):
    wide = torch.promote_types(sa.dtype, torch.float32)
    left = a.to(wide) * sa.repeat_interleave(128, 1)
    right = b.to(wide) * sb.repeat_interleave(128, 0)[: len(b)].repeat_interleave(128, 1)
    return left @ right.T


def inputs(case, generator):
    def normal(rows, columns):
        return torch.randn((rows, columns), generator=generator, device=generator.device)

    m, n, k = case["M"], case["N"], case["K"]
    a, b = normal(m, k).view(m, k // 128, 128), normal(n, k)
    sa = a.abs().amax(2).clamp_min(1e-4) / 448
    blocks = torch.nn.functional.pad(b, (0, 0, 0, -n % 128)).view(-1, 128, k // 128, 128)
    sb = blocks.abs().amax((1, 3)).clamp_min(1e-4) / 448
    scaled = b / sb.repeat_interleave(128, 0)[:n].repeat_interleave(128, 1)
    return {
        "a": (a / sa[:, :, None]).view(m, k).to(torch.float8_e4m3fn),
        "b": scaled.to(torch.float8_e4m3fn),
        "sa": sa,
        "sb": sb,
    }


CASES = {"4k": dict(M=4096, N=7168, K=2048)}
SMALL = {"even": dict(M=64, N=128, K=256), "ragged": dict(M=33, N=200, K=384)}
HELD_OUT = {"ragged": dict(M=1000, N=576, K=7168)}


def flops(case):
    return 2 * case["M"] * case["N"] * case["K"]


def bytes_moved(case):
    return case["M"] * case["K"] + case["N"] * case["K"] + 4 * case["M"] * case["N"]
