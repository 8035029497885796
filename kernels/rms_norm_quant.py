"""RMS norm of rows, then quantization to fp8 in blocks of 128: Y = X / rms(X) * W, Q = Y / S, S = amax(|Y|) / 448.

X is [M, N] in fp16 or bf16 with contiguous rows, N a multiple of 128 of at most 16384; W is [N]. Q is [M, N] in e4m3,
S is [M, N / 128] float32: a scale for each 128 elements of a row, as fp8 GEMMs in the scheme of DeepSeek take them.
"""

import torch
import triton
import triton.language as tl

GROUP = tl.constexpr(128)
LARGEST = tl.constexpr(448.0)  # of e4m3
CONFIGS = [
    triton.Config({"ROWS": 1}, num_warps=4),
    triton.Config({"ROWS": 1}, num_warps=8),
    triton.Config({"ROWS": 1}, num_warps=16),
    triton.Config({"ROWS": 2}, num_warps=4),
    triton.Config({"ROWS": 2}, num_warps=8),
    triton.Config({"ROWS": 4}, num_warps=8),
]


@triton.autotune(configs=CONFIGS, key=["M", "N"])
@triton.jit
def _rms_norm_quant(
    X,
    W,
    Q,
    S,
    M,
    eps,
    stride_xm,
    N: tl.constexpr,
    COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, COLUMNS)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    rows = rows.to(tl.int64)  # rows times columns may be more than 32 bits hold
    x = tl.load(X + rows[:, None] * stride_xm + columns[None, :], mask=inside, other=0.0).to(tl.float32)
    w = tl.load(W + columns, mask=columns < N, other=0.0).to(tl.float32)
    rstd = tl.math.rsqrt(tl.sum(x * x, 1) / N + eps)
    y = tl.reshape(x * rstd[:, None] * w[None, :], [ROWS, COLUMNS // GROUP, GROUP])
    # A block of zeros must not divide by zero.
    scale = tl.maximum(tl.max(tl.abs(y), 2), 1e-10) / LARGEST
    q = tl.reshape(y / scale[:, :, None], [ROWS, COLUMNS])
    tl.store(Q + rows[:, None] * N + columns[None, :], q.to(Q.dtype.element_ty), mask=inside)
    groups = tl.arange(0, COLUMNS // GROUP)
    s_ptrs = S + rows[:, None] * (N // GROUP) + groups[None, :]
    tl.store(s_ptrs, scale, mask=(rows[:, None] < M) & (groups[None, :] < N // GROUP))


def kernel(x, weight, eps):
    M, N = x.shape
    if N % 128 or N > 16384 or x.stride(1) != 1:
        raise ValueError(f"rows of {N}: only contiguous rows of a multiple of 128, and at most 16384, are supported")
    q = torch.empty((M, N), device=x.device, dtype=torch.float8_e4m3fn)
    s = torch.empty((M, N // 128), device=x.device, dtype=torch.float32)
    grid = lambda meta: (triton.cdiv(M, meta["ROWS"]),)  # noqa: E731
    _rms_norm_quant[grid](x, weight, q, s, M, eps, x.stride(0), N, COLUMNS=triton.next_power_of_2(N))
    return q, s


# ----------------------------------------------------------------------------------------------------------------------
# The contract: what the result must be, on what it is tried, what it must cost at least.


def reference(x, weight, eps):
    wide = torch.promote_types(x.dtype, torch.float32)
    exact = x.dtype == torch.float64  # then Q is the quotient that fp8 rounds
    y = x.to(wide) * torch.rsqrt(x.to(wide).square().mean(1, keepdim=True) + eps) * weight.to(wide)
    blocks = y.view(len(y), -1, 128)
    s = blocks.abs().amax(2).clamp_min(1e-10) / 448
    q = (blocks / s[:, :, None]).view(y.shape)
    return q if exact else q.to(torch.float8_e4m3fn), s


def inputs(case, generator):
    def normal(*shape):
        return torch.randn(shape, generator=generator, device=generator.device, dtype=torch.float32)

    dtype = getattr(torch, case["dtype"])
    wide = normal(case["M"], case["N"] + case["gap"])
    weight = 1 + 0.1 * normal(case["N"])
    return {"x": wide.to(dtype)[:, : case["N"]], "weight": weight.to(dtype), "eps": 1e-6}


CASES = {
    "prefill-7168": dict(M=16384, N=7168, gap=0, dtype="bfloat16"),
    "prefill-4096": dict(M=16384, N=4096, gap=0, dtype="bfloat16"),
    "query-1536": dict(M=16384, N=1536, gap=576, dtype="bfloat16"),  # a part of a wider projection, as in MLA
    "decode-7168": dict(M=128, N=7168, gap=0, dtype="bfloat16"),
}
SMALL = {
    "even": dict(M=32, N=1024, gap=0, dtype="bfloat16"),
    "ragged": dict(M=37, N=640, gap=0, dtype="float16"),
    "apart": dict(M=18, N=1536, gap=64, dtype="bfloat16"),
    "one-block": dict(M=5, N=128, gap=0, dtype="float16"),
}
HELD_OUT = {
    "long-rows": dict(M=1021, N=16384, gap=0, dtype="bfloat16"),
    "ragged-fp16": dict(M=3333, N=5120, gap=0, dtype="float16"),
    "apart": dict(M=2047, N=2944, gap=128, dtype="bfloat16"),
    "one-row": dict(M=1, N=7168, gap=0, dtype="float16"),
    "short-rows": dict(M=999, N=384, gap=0, dtype="bfloat16"),
}

# The tuned baseline is the best of this grid, declared before any run.
LAUNCH_SPACE = {
    "ROWS": [1, 2, 4],
    "num_warps": [1, 2, 4, 8, 16],
}


def flops(case):
    return 7 * case["M"] * case["N"]


def bytes_moved(case):
    M, N = case["M"], case["N"]
    return 2 * (M * N + N) + M * N + 4 * M * (N // 128)


def _vllm(x, weight, eps):
    from vllm import _custom_ops

    return _custom_ops.rms_norm_per_block_quant(x, weight, eps, torch.float8_e4m3fn, [1, 128])


# Timed beside the kernel for the tables; never part of a verdict.
LIBRARIES = {"vLLM": _vllm}
