"""Flash-attention forward: O = softmax(Q K^T / sqrt(D)) V and the log-sum-exp of every row.

Q is [B, H, S, D]; K and V are [B, HK, S, D] with H a multiple of HK (grouped-query attention). Any strides with a
contiguous last dimension, any S, D of 64 or 128, fp16 or bf16, causal or not. O has Q's type, LSE is [B, H, S] float32
in natural log.
"""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 128}, num_warps=8, num_stages=3),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 128}, num_warps=8, num_stages=2),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 64}, num_warps=8, num_stages=3),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 64}, num_warps=4, num_stages=3),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64}, num_warps=4, num_stages=3),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 32}, num_warps=4, num_stages=4),
]


@triton.jit
def _attend(
    acc,
    l_i,
    m_i,
    q,
    k_ptrs,
    v_ptrs,
    lo,
    hi,
    stride_kn,
    stride_vn,
    offs_m,
    offs_n,
    scale,
    S,
    BLOCK_N: tl.constexpr,
    CAUSAL: tl.constexpr,
    EVEN: tl.constexpr,
):
    """Folds the key blocks [lo, hi) into the running softmax; masks them only where CAUSAL or not EVEN ask for it."""
    for start in range(lo, hi, BLOCK_N):
        cols = start + offs_n
        if EVEN:
            k = tl.load(k_ptrs + start * stride_kn)
        else:
            k = tl.load(k_ptrs + start * stride_kn, mask=cols[None, :] < S, other=0.0)
        qk = tl.dot(q, k)
        if CAUSAL:
            qk = tl.where(offs_m[:, None] >= cols[None, :], qk, -1.0e30)
        if not EVEN:
            qk = tl.where(cols[None, :] < S, qk, -1.0e30)
        m_new = tl.maximum(m_i, tl.max(qk, 1) * scale)
        p = tl.math.exp2(qk * scale - m_new[:, None])
        alpha = tl.math.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        if EVEN:
            v = tl.load(v_ptrs + start * stride_vn)
        else:
            v = tl.load(v_ptrs + start * stride_vn, mask=cols[:, None] < S, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc)
        m_i = m_new
    return acc, l_i, m_i


@triton.autotune(configs=CONFIGS, key=["S", "D", "CAUSAL"])
@triton.heuristics({"EVEN": lambda a: a["S"] % a["BLOCK_M"] == 0 and a["S"] % a["BLOCK_N"] == 0})
@triton.jit
def _fa_fwd(
    Q,
    K,
    V,
    O,
    LSE,
    sm_scale,
    stride_qb,
    stride_qh,
    stride_qm,
    stride_kb,
    stride_kh,
    stride_kn,
    stride_vb,
    stride_vh,
    stride_vn,
    stride_ob,
    stride_oh,
    stride_om,
    H,
    S,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    CAUSAL: tl.constexpr,
    EVEN: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    block = tl.program_id(0)
    b = (tl.program_id(1) // H).to(tl.int64)
    h = (tl.program_id(1) % H).to(tl.int64)
    offs_m = block * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, D)
    q_ptrs = Q + b * stride_qb + h * stride_qh + offs_m[:, None] * stride_qm + offs_d[None, :]
    k_ptrs = K + b * stride_kb + (h // GROUP) * stride_kh + offs_n[None, :] * stride_kn + offs_d[:, None]
    v_ptrs = V + b * stride_vb + (h // GROUP) * stride_vh + offs_n[:, None] * stride_vn + offs_d[None, :]
    q = tl.load(q_ptrs) if EVEN else tl.load(q_ptrs, mask=offs_m[:, None] < S, other=0.0)
    m_i = tl.full([BLOCK_M], -float("inf"), tl.float32)
    l_i = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, D], tl.float32)
    scale = sm_scale * 1.4426950408889634  # exp(x) = exp2(x * log2(e))
    if CAUSAL:
        diagonal = (block * BLOCK_M) // BLOCK_N * BLOCK_N  # the key blocks before it lie wholly below the diagonal
        end = tl.minimum((block + 1) * BLOCK_M, S)
        acc, l_i, m_i = _attend(
            acc,
            l_i,
            m_i,
            q,
            k_ptrs,
            v_ptrs,
            0,
            diagonal,
            stride_kn,
            stride_vn,
            offs_m,
            offs_n,
            scale,
            S,
            BLOCK_N,
            False,
            True,
        )
        acc, l_i, m_i = _attend(
            acc,
            l_i,
            m_i,
            q,
            k_ptrs,
            v_ptrs,
            diagonal,
            end,
            stride_kn,
            stride_vn,
            offs_m,
            offs_n,
            scale,
            S,
            BLOCK_N,
            True,
            EVEN,
        )
    else:
        acc, l_i, m_i = _attend(
            acc, l_i, m_i, q, k_ptrs, v_ptrs, 0, S, stride_kn, stride_vn, offs_m, offs_n, scale, S, BLOCK_N, False, EVEN
        )
    acc = acc / l_i[:, None]
    lse = (m_i + tl.math.log2(l_i)) * 0.6931471805599453
    o_ptrs = O + b * stride_ob + h * stride_oh + offs_m[:, None] * stride_om + offs_d[None, :]
    lse_ptrs = LSE + (b * H + h) * S + offs_m
    if EVEN:
        tl.store(o_ptrs, acc.to(O.dtype.element_ty))
        tl.store(lse_ptrs, lse)
    else:
        tl.store(o_ptrs, acc.to(O.dtype.element_ty), mask=offs_m[:, None] < S)
        tl.store(lse_ptrs, lse, mask=offs_m < S)


def kernel(q, k, v, causal):
    B, H, S, D = q.shape
    if D not in (64, 128):
        raise ValueError(f"head dimension {D}: only 64 and 128 are supported")
    o = torch.empty_like(q)
    lse = torch.empty((B, H, S), device=q.device, dtype=torch.float32)
    grid = lambda meta: (triton.cdiv(S, meta["BLOCK_M"]), B * H)  # noqa: E731
    _fa_fwd[grid](
        q,
        k,
        v,
        o,
        lse,
        D**-0.5,
        *q.stride()[:3],
        *k.stride()[:3],
        *v.stride()[:3],
        *o.stride()[:3],
        H,
        S,
        GROUP=H // k.shape[1],
        D=D,
        CAUSAL=causal,
    )
    return o, lse


# ----------------------------------------------------------------------------------------------------------------------
# The contract: what the result must be, on what it is tried, what it must cost at least.


def reference(q, k, v, causal):
    B, H, S, D = q.shape
    o = torch.empty_like(q)
    wide = torch.promote_types(q.dtype, torch.float32)
    lse = torch.empty((B, H, S), device=q.device, dtype=wide)
    hidden = torch.ones(S, S, dtype=torch.bool, device=q.device).triu(1) if causal else None
    for b in range(B):
        for h in range(H):
            g = h // (H // k.shape[1])
            s = (q[b, h] @ k[b, g].T).to(wide) * D**-0.5
            if hidden is not None:
                s = s.masked_fill(hidden, float("-inf"))
            lse[b, h] = torch.logsumexp(s, -1)
            o[b, h] = torch.softmax(s, -1).to(q.dtype) @ v[b, g]
    return o, lse


def inputs(case, generator):
    dtype = getattr(torch, case["dtype"])

    def tensor(heads):
        shape = (case["B"], heads, case["S"], case["D"])
        return torch.randn(shape, generator=generator, device=generator.device, dtype=torch.float32).to(dtype)

    return {"q": tensor(case["H"]), "k": tensor(case["HK"]), "v": tensor(case["HK"]), "causal": case["causal"]}


CASES = {
    "d128-4k": dict(B=4, H=32, HK=32, S=4096, D=128, causal=False, dtype="float16"),
    "d128-4k-causal": dict(B=4, H=32, HK=32, S=4096, D=128, causal=True, dtype="float16"),
    "d128-8k-gqa-bf16": dict(B=1, H=32, HK=8, S=8192, D=128, causal=True, dtype="bfloat16"),
    "d64-4k": dict(B=4, H=32, HK=32, S=4096, D=64, causal=False, dtype="float16"),
}
SMALL = {
    "d64-even": dict(B=1, H=2, HK=2, S=256, D=64, causal=False, dtype="float16"),
    "d64-ragged-causal": dict(B=2, H=2, HK=1, S=150, D=64, causal=True, dtype="float16"),
    "d128-ragged": dict(B=1, H=1, HK=1, S=192, D=128, causal=False, dtype="float16"),
}
HELD_OUT = {
    "d128-ragged": dict(B=2, H=8, HK=8, S=2047, D=128, causal=False, dtype="float16"),
    "d128-ragged-causal-gqa": dict(B=2, H=16, HK=2, S=1999, D=128, causal=True, dtype="bfloat16"),
    "d64-causal": dict(B=2, H=8, HK=8, S=3072, D=64, causal=True, dtype="float16"),
    "d64-short": dict(B=3, H=4, HK=4, S=77, D=64, causal=False, dtype="bfloat16"),
}

# The tuned baseline is the best of this grid, declared before any run.
LAUNCH_SPACE = {
    "BLOCK_M": [64, 128],
    "BLOCK_N": [32, 64, 128],
    "num_warps": [4, 8],
    "num_stages": [2, 3, 4],
}


def flops(case):
    full = 4 * case["B"] * case["H"] * case["S"] ** 2 * case["D"]
    return full // 2 if case["causal"] else full


def bytes_moved(case):
    rows = case["B"] * case["S"]
    return 2 * rows * case["D"] * (2 * case["H"] + 2 * case["HK"]) + 4 * rows * case["H"]


def _sdpa(backend):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def run(q, k, v, causal):
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1]
            )

    return run


# Timed beside the kernel for the tables; never part of a verdict.
LIBRARIES = {"cuDNN": _sdpa("CUDNN_ATTENTION"), "FlashAttention-2": _sdpa("FLASH_ATTENTION")}
