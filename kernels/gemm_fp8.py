"""Matrix product of fp8 numbers with block scales, as in DeepSeek's scheme: C = (A * SA) (B * SB)^T in bf16.

A is [M, K] and B [N, K] in e4m3, both with contiguous rows, K a multiple of 128, any M and N. SA is [M, K / 128]
float32, a scale for each 128 elements of a row, in any strides (the cases use columns, as TMA loads them, and rows). SB
has a row for each 128 of N and a column for each 128 of K. Tensor cores of Hopper add the products of 128 with 14 bits;
each such sum is promoted to float32.
"""

import torch
import triton
import triton.language as tl

GROUP_K = tl.constexpr(128)  # elements of a scale along K: what is added before a promotion
CONFIGS = [
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "GROUP_M": 8}, num_warps=8, num_stages=3),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "GROUP_M": 8}, num_warps=8, num_stages=4),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "GROUP_M": 8}, num_warps=4, num_stages=3),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 128, "GROUP_M": 8}, num_warps=4, num_stages=4),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 64, "GROUP_M": 8}, num_warps=4, num_stages=4),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "GROUP_M": 8}, num_warps=4, num_stages=5),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 32, "GROUP_M": 8}, num_warps=4, num_stages=5),
]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"])
@triton.jit
def _gemm_fp8(
    A,
    B,
    C,
    SA,
    SB,
    M,
    N,
    K,
    stride_am,
    stride_bn,
    stride_sam,
    stride_sak,
    stride_sbn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    # Blocks that run at the same time share rows of A and of B in the L2: GROUP_M rows of tiles at once.
    tiles_m = tl.cdiv(M, BLOCK_M)
    width = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = tl.program_id(0) // width * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    tile_m = first + tl.program_id(0) % width % height
    tile_n = tl.program_id(0) % width // height

    rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    # Rows beyond the edge are read as the last one and not stored: loads without masks in the hot loop.
    at_m = tl.minimum(rows, M - 1)
    at_n = tl.minimum(columns, N - 1)
    offs_k = tl.arange(0, GROUP_K)
    a_ptrs = A + at_m[:, None].to(tl.int64) * stride_am + offs_k[None, :]
    b_ptrs = B + at_n[None, :].to(tl.int64) * stride_bn + offs_k[:, None]
    sa_ptrs = SA + at_m.to(tl.int64) * stride_sam
    # A tile of B is never wider than a block of scales, and starts at a multiple of its width: it has one scale.
    sb_ptr = SB + tile_n * BLOCK_N // GROUP_K * stride_sbn

    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for _ in range(0, K, GROUP_K):
        a = tl.load(a_ptrs)
        b = tl.load(b_ptrs)
        scale = tl.load(sa_ptrs) * tl.load(sb_ptr)
        acc += tl.dot(a, b) * scale[:, None]
        a_ptrs += GROUP_K
        b_ptrs += GROUP_K
        sa_ptrs += stride_sak
        sb_ptr += 1

    c_ptrs = C + rows[:, None].to(tl.int64) * N + columns[None, :]
    tl.store(c_ptrs, acc.to(C.dtype.element_ty), mask=(rows[:, None] < M) & (columns[None, :] < N))


def kernel(a, b, sa, sb):
    M, K = a.shape
    N = b.shape[0]
    if b.shape[1] != K or K % 128 or a.stride(1) != 1 or b.stride(1) != 1 or sb.stride(1) != 1:
        raise ValueError(f"cannot multiply {M}x{K} by the transposed {N}x{b.shape[1]} in blocks of 128")
    c = torch.empty((M, N), device=a.device, dtype=torch.bfloat16)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    _gemm_fp8[grid](a, b, c, sa, sb, M, N, K, a.stride(0), b.stride(0), *sa.stride(), sb.stride(0))
    return c


# ----------------------------------------------------------------------------------------------------------------------
# The contract: what the result must be, on what it is tried, what it must cost at least.


def reference(a, b, sa, sb):
    wide = torch.promote_types(sa.dtype, torch.float32)
    left = a.to(wide) * sa.repeat_interleave(128, 1)
    right = b.to(wide) * sb.repeat_interleave(128, 0)[: len(b)].repeat_interleave(128, 1)
    c = left @ right.T
    return c if wide == torch.float64 else c.to(torch.bfloat16)


def inputs(case, generator):
    m, n, k = case["M"], case["N"], case["K"]

    def normal(rows, columns):
        return torch.randn((rows, columns), generator=generator, device=generator.device, dtype=torch.float32)

    a, b = normal(m, k).view(m, k // 128, 128), normal(n, k)
    sa = a.abs().amax(2).clamp_min(1e-4) / 448
    blocks = torch.nn.functional.pad(b, (0, 0, 0, -n % 128)).view(-1, 128, k // 128, 128)
    sb = blocks.abs().amax((1, 3)).clamp_min(1e-4) / 448
    b = b / sb.repeat_interleave(128, 0)[:n].repeat_interleave(128, 1)
    return {
        "a": (a / sa[:, :, None]).view(m, k).to(torch.float8_e4m3fn),
        "b": b.to(torch.float8_e4m3fn),
        "sa": sa if case["rows"] else sa.T.contiguous().T,
        "sb": sb,
    }


CASES = {  # of DeepSeek-V3: projections of its attention and its experts
    "4k-7168-2048": dict(M=4096, N=7168, K=2048, rows=False),
    "4k-2112-7168": dict(M=4096, N=2112, K=7168, rows=False),
    "8k-4096-7168": dict(M=8192, N=4096, K=7168, rows=True),
    "64-7168-16384": dict(M=64, N=7168, K=16384, rows=False),
}
SMALL = {
    "even": dict(M=128, N=256, K=256, rows=False),
    "ragged": dict(M=33, N=200, K=384, rows=True),
    "tall": dict(M=1089, N=64, K=128, rows=False),  # more rows of tiles than a group has
    "one-row": dict(M=1, N=300, K=128, rows=True),
}
HELD_OUT = {
    "ragged": dict(M=1000, N=576, K=7168, rows=True),
    "ragged-columns": dict(M=777, N=1999, K=2304, rows=False),
    "decode": dict(M=7, N=4608, K=1536, rows=False),
    "short-k": dict(M=512, N=768, K=128, rows=True),
    "tiny": dict(M=3, N=5, K=256, rows=False),
}

# The tuned baseline is the best of this grid, declared before any run.
LAUNCH_SPACE = {
    "BLOCK_M": [64, 128],
    "BLOCK_N": [32, 64, 128],
    "GROUP_M": [8],
    "num_warps": [4, 8],
    "num_stages": [3, 4, 5],
}


def flops(case):
    return 2 * case["M"] * case["N"] * case["K"]


def bytes_moved(case):
    M, N, K = case["M"], case["N"], case["K"]
    scales = M * (K // 128) + triton.cdiv(N, 128) * (K // 128)
    return M * K + N * K + 2 * M * N + 4 * scales


def _deep_gemm(a, b, sa, sb):
    import deep_gemm

    c = torch.empty((len(a), len(b)), device=a.device, dtype=torch.bfloat16)
    deep_gemm.fp8_gemm_nt((a, sa), (b, sb), c)
    return c


def _cublas(a, b, sa, sb):
    from torch.nn.functional import ScalingType, scaled_mm

    along, block = ScalingType.BlockWise1x128, ScalingType.BlockWise128x128
    return scaled_mm(a, b.T, sa, along, sb.T, block, output_dtype=torch.bfloat16)


# Timed beside the kernel for the tables; never part of a verdict.
LIBRARIES = {"DeepGEMM": _deep_gemm, "cuBLAS": _cublas}
