"""Matrix product: C = A B, with float32 accumulation.

A is [M, K], B is [K, N], C is a new contiguous [M, N] of A's type: fp16 or bf16, any M, N and K. A and B may have any
strides; the cases use a row-major A and both layouts of B: row-major (N contiguous) and transposed (K contiguous).
"""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8}, num_warps=8, num_stages=3),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8}, num_warps=8, num_stages=3),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8}, num_warps=4, num_stages=4),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8}, num_warps=4, num_stages=4),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 8}, num_warps=4, num_stages=4),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8}, num_warps=4, num_stages=4),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 128, "GROUP_M": 8}, num_warps=4, num_stages=4),
]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"])
@triton.heuristics(
    {
        "EVEN_MN": lambda a: a["M"] % a["BLOCK_M"] == 0 and a["N"] % a["BLOCK_N"] == 0,
        "EVEN_K": lambda a: a["K"] % a["BLOCK_K"] == 0,
    }
)
@triton.jit
def _gemm(
    A,
    B,
    C,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    EVEN_MN: tl.constexpr,
    EVEN_K: tl.constexpr,
):
    # Blocks that run at the same time share rows of A and columns of B in the L2: GROUP_M rows of tiles at once.
    tiles_m = tl.cdiv(M, BLOCK_M)
    width = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = tl.program_id(0) // width * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    tile_m = first + tl.program_id(0) % width % height
    tile_n = tl.program_id(0) % width // height

    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    # Only the corner of the tile needs 64 bits; inside of it 32 are enough, and cheaper.
    corner_m = (tile_m * BLOCK_M).to(tl.int64)
    corner_n = (tile_n * BLOCK_N).to(tl.int64)
    a_ptrs = A + corner_m * stride_am + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = B + corner_n * stride_bn + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
    in_m = (tile_m * BLOCK_M + offs_m < M)[:, None]
    in_n = (tile_n * BLOCK_N + offs_n < N)[None, :]

    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for k in range(0, K, BLOCK_K):
        if EVEN_K:
            if EVEN_MN:
                a = tl.load(a_ptrs)
                b = tl.load(b_ptrs)
            else:
                a = tl.load(a_ptrs, mask=in_m, other=0.0)
                b = tl.load(b_ptrs, mask=in_n, other=0.0)
        else:
            in_k = offs_k < K - k
            a = tl.load(a_ptrs, mask=in_m & in_k[None, :], other=0.0)
            b = tl.load(b_ptrs, mask=in_k[:, None] & in_n, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk

    c_ptrs = C + corner_m * stride_cm + corner_n + offs_m[:, None] * stride_cm + offs_n[None, :]
    if EVEN_MN:
        tl.store(c_ptrs, acc.to(C.dtype.element_ty))
    else:
        tl.store(c_ptrs, acc.to(C.dtype.element_ty), mask=in_m & in_n)


def kernel(a, b):
    M, K = a.shape
    N = b.shape[1]
    if b.shape[0] != K:
        raise ValueError(f"cannot multiply {M}x{K} by {b.shape[0]}x{N}")
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    _gemm[grid](a, b, c, M, N, K, *a.stride(), *b.stride(), c.stride(0))
    return c


# ----------------------------------------------------------------------------------------------------------------------
# The contract: what the result must be, on what it is tried, what it must cost at least.


def reference(a, b):
    wide = torch.promote_types(a.dtype, torch.float32)  # a matmul in fp16 may round its partial sums on a GPU
    return (a.to(wide) @ b.to(wide)).to(a.dtype)


def inputs(case, generator):
    dtype = getattr(torch, case["dtype"])

    def matrix(rows, columns):
        return torch.randn((rows, columns), generator=generator, device=generator.device, dtype=torch.float32).to(dtype)

    a = matrix(case["M"], case["K"])
    b = matrix(case["N"], case["K"]).T if case["transposed"] else matrix(case["K"], case["N"])
    return {"a": a, "b": b}


CASES = {
    "8k": dict(M=8192, N=8192, K=8192, transposed=False, dtype="float16"),
    "4k-bt-bf16": dict(M=4096, N=4096, K=4096, transposed=True, dtype="bfloat16"),
    "ragged": dict(M=4000, N=4099, K=4097, transposed=False, dtype="float16"),  # rows of A and B start at odd addresses
    "skinny": dict(M=64, N=8192, K=8192, transposed=True, dtype="float16"),
}
SMALL = {
    "even": dict(M=256, N=256, K=256, transposed=False, dtype="float16"),
    "even-bt": dict(M=128, N=512, K=128, transposed=True, dtype="float16"),
    "ragged-n": dict(M=256, N=257, K=64, transposed=True, dtype="float16"),
    "ragged": dict(M=200, N=333, K=97, transposed=False, dtype="float16"),
    "ragged-bt": dict(M=65, N=257, K=161, transposed=True, dtype="float16"),
    "tall": dict(M=1089, N=128, K=40, transposed=False, dtype="float16"),  # more rows of tiles than a group has
    "one-row": dict(M=1, N=300, K=40, transposed=True, dtype="float16"),
}
HELD_OUT = {
    "even-bf16": dict(M=2048, N=1024, K=4096, transposed=False, dtype="bfloat16"),
    "even-bt": dict(M=1024, N=3072, K=512, transposed=True, dtype="float16"),
    "ragged-bt": dict(M=1111, N=2047, K=1537, transposed=True, dtype="float16"),
    "ragged-bf16": dict(M=1999, N=777, K=3001, transposed=False, dtype="bfloat16"),
    "ragged-k": dict(M=1024, N=1024, K=1000, transposed=False, dtype="float16"),
    "ragged-mn-bt-bf16": dict(M=1000, N=1008, K=2048, transposed=True, dtype="bfloat16"),
    "short-k": dict(M=512, N=768, K=24, transposed=False, dtype="float16"),
    "tiny": dict(M=7, N=9, K=5, transposed=True, dtype="bfloat16"),
}

# The tuned baseline is the best of this grid, declared before any run.
LAUNCH_SPACE = {
    "BLOCK_M": [64, 128],
    "BLOCK_N": [64, 128, 256],
    "BLOCK_K": [64, 128],
    "GROUP_M": [8],
    "num_warps": [4, 8],
    "num_stages": [3, 4],
}


def flops(case):
    return 2 * case["M"] * case["N"] * case["K"]


def bytes_moved(case):
    M, N, K = case["M"], case["N"], case["K"]
    return 2 * (M * K + K * N + M * N)


def _cublas(a, b):
    return a @ b


# Timed beside the kernel for the tables; never part of a verdict.
LIBRARIES = {"cuBLAS": _cublas}
