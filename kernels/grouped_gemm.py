"""Grouped matrix product of a mixture of experts: rows of X, sorted by expert, each group times its expert's matrix.

X is [T, K] with contiguous rows; W is [E, K, N] in any strides (the cases use both layouts of its matrices); ENDS is
[E] int32: the rows of expert e are ENDS[e - 1] to ENDS[e]. Groups may have any number of rows, none too. Y is [T, N] of
X's type: fp16 or bf16.
"""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8}, num_warps=8, num_stages=3),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8}, num_warps=8, num_stages=3),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8}, num_warps=4, num_stages=4),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8}, num_warps=4, num_stages=4),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8}, num_warps=4, num_stages=4),
    triton.Config({"BLOCK_M": 16, "BLOCK_N": 128, "BLOCK_K": 128, "GROUP_M": 1}, num_warps=4, num_stages=4),
    triton.Config({"BLOCK_M": 16, "BLOCK_N": 64, "BLOCK_K": 128, "GROUP_M": 1}, num_warps=4, num_stages=5),
]


@triton.autotune(configs=CONFIGS, key=["T", "N", "K", "E"])
@triton.heuristics({"EVEN_K": lambda a: a["K"] % a["BLOCK_K"] == 0})
@triton.jit
def _grouped_gemm(
    X,
    W,
    Y,
    ENDS,
    T,
    N,
    K,
    E,
    stride_xm,
    stride_we,
    stride_wk,
    stride_wn,
    EXPERTS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    EVEN_K: tl.constexpr,
):
    # Each expert adds at most one tile that is not full: the grid has room for all of them.
    tiles_m = tl.cdiv(T, BLOCK_M) + E
    width = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = tl.program_id(0) // width * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    tile = first + tl.program_id(0) % width % height
    tile_n = tl.program_id(0) % width // height

    # Which expert a tile belongs to is found here: a table made by the host would wait for the lengths of the groups.
    experts = tl.arange(0, EXPERTS)
    ends = tl.load(ENDS + experts, mask=experts < E, other=0)
    starts = tl.load(ENDS + experts - 1, mask=(experts > 0) & (experts < E), other=0)
    tiles = tl.where(experts < E, tl.cdiv(ends - starts, BLOCK_M), 0)
    expert = tl.sum((tl.cumsum(tiles, 0) <= tile).to(tl.int32))
    if expert >= E:
        return
    before = tl.sum(tl.where(experts < expert, tiles, 0))
    start = tl.sum(tl.where(experts == expert, starts, 0)) + (tile - before) * BLOCK_M
    end = tl.sum(tl.where(experts == expert, ends, 0))

    rows = start + tl.arange(0, BLOCK_M)
    columns = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    # What lies beyond the edge is read as the last row or column and not stored: loads without masks in the hot loop.
    at_m = tl.minimum(rows, end - 1).to(tl.int64)
    at_n = tl.minimum(columns, N - 1)
    x_ptrs = X + at_m[:, None] * stride_xm + offs_k[None, :]
    w_ptrs = W + expert.to(tl.int64) * stride_we + offs_k[:, None] * stride_wk + at_n[None, :] * stride_wn
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for k in range(0, K, BLOCK_K):
        if EVEN_K:
            x = tl.load(x_ptrs)
            w = tl.load(w_ptrs)
        else:
            x = tl.load(x_ptrs, mask=offs_k[None, :] < K - k, other=0.0)
            w = tl.load(w_ptrs, mask=offs_k[:, None] < K - k, other=0.0)
        acc = tl.dot(x, w, acc)
        x_ptrs += BLOCK_K
        w_ptrs += BLOCK_K * stride_wk

    y_ptrs = Y + rows[:, None].to(tl.int64) * N + columns[None, :]
    tl.store(y_ptrs, acc.to(Y.dtype.element_ty), mask=(rows[:, None] < end) & (columns[None, :] < N))


def kernel(x, w, ends):
    T, K = x.shape
    E, _, N = w.shape
    if w.shape[1] != K or x.stride(1) != 1 or len(ends) != E:
        raise ValueError(f"cannot multiply {T}x{K} by {E} matrices of {w.shape[1]}x{N}")
    y = torch.empty((T, N), device=x.device, dtype=x.dtype)
    grid = lambda meta: ((triton.cdiv(T, meta["BLOCK_M"]) + E) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    _grouped_gemm[grid](x, w, y, ends, T, N, K, E, x.stride(0), *w.stride(), EXPERTS=triton.next_power_of_2(E))
    return y


# ----------------------------------------------------------------------------------------------------------------------
# The contract: what the result must be, on what it is tried, what it must cost at least.


def reference(x, w, ends):
    wide = torch.promote_types(x.dtype, torch.float32)  # a matmul in fp16 may round its partial sums on a GPU
    y = torch.zeros((len(x), w.shape[2]), device=x.device, dtype=x.dtype)
    start = 0
    for expert, end in enumerate(ends.tolist()):
        y[start:end] = (x[start:end].to(wide) @ w[expert].to(wide)).to(x.dtype)
        start = end
    return y


def inputs(case, generator):
    T, E, dtype = case["T"], case["E"], getattr(torch, case["dtype"])

    def draw(how, *shape):
        return how(shape, generator=generator, device=generator.device, dtype=torch.float32)

    # Routers prefer some experts: shares of a skewed distribution, and each row drawn by them.
    shares = torch.softmax(draw(torch.randn, E) * case["skew"], 0).cumsum(0)
    ends = torch.searchsorted(draw(torch.rand, T).sort().values, shares, right=True).to(torch.int32)
    ends[-1] = T
    K, N = case["K"], case["N"]
    w = draw(torch.randn, E, N, K).to(dtype).mT if case["transposed"] else draw(torch.randn, E, K, N).to(dtype)
    return {"x": draw(torch.randn, T, K).to(dtype), "w": w, "ends": ends}


CASES = {  # T: tokens times the experts that each of them goes to
    "8-experts": dict(T=8192, E=8, K=4096, N=7168, skew=0.5, transposed=True, dtype="bfloat16"),
    "128-experts": dict(T=32768, E=128, K=2048, N=1536, skew=1.0, transposed=True, dtype="bfloat16"),
    "512-experts": dict(T=40960, E=512, K=2048, N=1024, skew=1.0, transposed=True, dtype="bfloat16"),
    "decode": dict(T=512, E=128, K=2048, N=1536, skew=1.0, transposed=True, dtype="bfloat16"),
}
SMALL = {
    "uneven": dict(T=300, E=4, K=128, N=256, skew=1.0, transposed=True, dtype="float16"),
    "ragged": dict(T=137, E=5, K=72, N=200, skew=1.5, transposed=False, dtype="float16"),
    "empty-groups": dict(T=9, E=16, K=64, N=128, skew=2.0, transposed=True, dtype="bfloat16"),
    "one-row": dict(T=1, E=3, K=40, N=65, skew=0.0, transposed=True, dtype="float16"),
}
HELD_OUT = {
    "skewed": dict(T=4096, E=64, K=1024, N=1408, skew=3.0, transposed=True, dtype="bfloat16"),
    "ragged": dict(T=1999, E=33, K=777, N=1001, skew=1.0, transposed=False, dtype="float16"),
    "rows-of-w": dict(T=2048, E=16, K=2048, N=1024, skew=0.5, transposed=False, dtype="bfloat16"),
    "few-rows": dict(T=24, E=256, K=512, N=512, skew=1.0, transposed=True, dtype="float16"),
    "one-expert": dict(T=130, E=1, K=96, N=72, skew=0.0, transposed=True, dtype="bfloat16"),
}

# The tuned baseline is the best of this grid, declared before any run.
LAUNCH_SPACE = {
    "BLOCK_M": [16, 64, 128],
    "BLOCK_N": [64, 128, 256],
    "BLOCK_K": [64],
    "GROUP_M": [8],
    "num_warps": [4, 8],
    "num_stages": [3, 4],
}


def flops(case):
    return 2 * case["T"] * case["N"] * case["K"]


def bytes_moved(case):
    from math import exp
    from statistics import NormalDist

    T, E, N, K = case["T"], case["E"], case["N"], case["K"]
    # The matrix of an expert without rows is not read. Shares as inputs() draws them, by quantiles of the normal.
    drawn = [exp(case["skew"] * NormalDist().inv_cdf((i + 0.5) / E)) for i in range(E)]
    chosen = sum(1 - (1 - share / sum(drawn)) ** T for share in drawn)
    return round(2 * (T * K + chosen * K * N + T * N))


def _torch(x, w, ends):
    return torch.nn.functional.grouped_mm(x, w, offs=ends)


# Timed beside the kernel for the tables; never part of a verdict.
LIBRARIES = {"torch grouped_mm": _torch}
