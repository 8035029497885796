"""Attention of queries to keys of another length (cross-attention): O = softmax(Q K^T / sqrt(D)) V.

Q is [B, H, SQ, D]; K and V are [B, HK, SK, D] with H a multiple of HK (grouped-query attention). Any strides with a
contiguous last dimension, any SQ and SK, D of 64 or 128, fp16 or bf16. O has Q's type and strides.
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
    offs_n,
    scale,
    SK,
    BLOCK_N: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Folds the key blocks [lo, hi) into the running softmax."""
    for start in range(lo, hi, BLOCK_N):
        inside = start + offs_n < SK
        if MASKED:
            k = tl.load(k_ptrs + start * stride_kn, mask=inside[None, :], other=0.0)
        else:
            k = tl.load(k_ptrs + start * stride_kn)
        qk = tl.dot(q, k)
        if MASKED:
            qk = tl.where(inside[None, :], qk, -1.0e30)
        m_new = tl.maximum(m_i, tl.max(qk, 1) * scale)
        p = tl.math.exp2(qk * scale - m_new[:, None])
        alpha = tl.math.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        if MASKED:
            v = tl.load(v_ptrs + start * stride_vn, mask=inside[:, None], other=0.0)
        else:
            v = tl.load(v_ptrs + start * stride_vn)
        acc = tl.dot(p.to(v.dtype), v, acc)
        m_i = m_new
    return acc, l_i, m_i


@triton.autotune(configs=CONFIGS, key=["SQ", "SK", "D"])
@triton.heuristics(
    {
        "EVEN_M": lambda a: a["SQ"] % a["BLOCK_M"] == 0,
        "EVEN_N": lambda a: a["SK"] % a["BLOCK_N"] == 0,
    }
)
@triton.jit
def _cross_attn(
    Q,
    K,
    V,
    O,
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
    SQ,
    SK,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    EVEN_M: tl.constexpr,
    EVEN_N: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    b = (tl.program_id(1) // H).to(tl.int64)
    h = (tl.program_id(1) % H).to(tl.int64)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, D)
    q_ptrs = Q + b * stride_qb + h * stride_qh + offs_m[:, None] * stride_qm + offs_d[None, :]
    k_ptrs = K + b * stride_kb + (h // GROUP) * stride_kh + offs_n[None, :] * stride_kn + offs_d[:, None]
    v_ptrs = V + b * stride_vb + (h // GROUP) * stride_vh + offs_n[:, None] * stride_vn + offs_d[None, :]
    q = tl.load(q_ptrs) if EVEN_M else tl.load(q_ptrs, mask=offs_m[:, None] < SQ, other=0.0)
    m_i = tl.full([BLOCK_M], -float("inf"), tl.float32)
    l_i = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, D], tl.float32)
    scale = sm_scale * 1.4426950408889634  # exp(x) = exp2(x * log2(e))
    whole = SK // BLOCK_N * BLOCK_N  # only the last block of keys may need a mask
    acc, l_i, m_i = _attend(
        acc, l_i, m_i, q, k_ptrs, v_ptrs, 0, whole, stride_kn, stride_vn, offs_n, scale, SK, BLOCK_N, False
    )
    if not EVEN_N:
        acc, l_i, m_i = _attend(
            acc, l_i, m_i, q, k_ptrs, v_ptrs, whole, SK, stride_kn, stride_vn, offs_n, scale, SK, BLOCK_N, True
        )
    acc = acc / l_i[:, None]
    o_ptrs = O + b * stride_ob + h * stride_oh + offs_m[:, None] * stride_om + offs_d[None, :]
    if EVEN_M:
        tl.store(o_ptrs, acc.to(O.dtype.element_ty))
    else:
        tl.store(o_ptrs, acc.to(O.dtype.element_ty), mask=offs_m[:, None] < SQ)


def kernel(q, k, v):
    B, H, SQ, D = q.shape
    HK, SK = k.shape[1:3]
    if D not in (64, 128):
        raise ValueError(f"head dimension {D}: only 64 and 128 are supported")
    o = torch.empty_like(q)
    grid = lambda meta: (triton.cdiv(SQ, meta["BLOCK_M"]), B * H)  # noqa: E731
    _cross_attn[grid](
        q,
        k,
        v,
        o,
        D**-0.5,
        *q.stride()[:3],
        *k.stride()[:3],
        *v.stride()[:3],
        *o.stride()[:3],
        H,
        SQ,
        SK,
        GROUP=H // HK,
        D=D,
    )
    return o


# ----------------------------------------------------------------------------------------------------------------------
# The contract: what the result must be, on what it is tried, what it must cost at least.


def reference(q, k, v):
    B, H, _, D = q.shape
    o = torch.empty_like(q)
    wide = torch.promote_types(q.dtype, torch.float32)
    for b in range(B):
        for h in range(H):
            g = h // (H // k.shape[1])
            s = (q[b, h] @ k[b, g].T).to(wide) * D**-0.5
            o[b, h] = torch.softmax(s, -1).to(q.dtype) @ v[b, g]
    return o


def inputs(case, generator):
    dtype = getattr(torch, case["dtype"])

    def tensor(length, heads):
        # As a projection leaves it, [B, S, H, D], seen with heads before positions.
        shape = (case["B"], length, heads, case["D"])
        made = torch.randn(shape, generator=generator, device=generator.device, dtype=torch.float32).to(dtype)
        return made.transpose(1, 2)

    SQ, SK, HK = case["SQ"], case["SK"], case["HK"]
    return {"q": tensor(SQ, case["H"]), "k": tensor(SK, HK), "v": tensor(SK, HK)}


CASES = {
    "image-to-text": dict(B=8, H=24, HK=24, SQ=4096, SK=512, D=64, dtype="bfloat16"),  # of a diffusion model
    "video-to-text": dict(B=1, H=40, HK=40, SQ=32760, SK=512, D=128, dtype="bfloat16"),  # Wan 2.1 at 480p
    "text-to-audio": dict(B=32, H=20, HK=20, SQ=448, SK=1500, D=64, dtype="float16"),  # the decoder of Whisper
    "text-to-image": dict(B=4, H=32, HK=8, SQ=1024, SK=6404, D=128, dtype="bfloat16"),  # Llama 3.2 Vision, four tiles
}
SMALL = {
    "even": dict(B=1, H=2, HK=2, SQ=128, SK=256, D=64, dtype="float16"),
    "ragged": dict(B=2, H=2, HK=1, SQ=150, SK=77, D=64, dtype="float16"),
    "few-queries": dict(B=1, H=1, HK=1, SQ=5, SK=300, D=128, dtype="float16"),
    "few-keys": dict(B=1, H=2, HK=2, SQ=140, SK=3, D=64, dtype="bfloat16"),
}
HELD_OUT = {
    "ragged-keys": dict(B=2, H=8, HK=8, SQ=2048, SK=333, D=128, dtype="bfloat16"),
    "ragged-queries-gqa": dict(B=2, H=16, HK=4, SQ=1999, SK=1024, D=64, dtype="float16"),
    "ragged-both": dict(B=3, H=4, HK=4, SQ=77, SK=1601, D=128, dtype="float16"),
    "one-query": dict(B=4, H=8, HK=2, SQ=1, SK=999, D=64, dtype="bfloat16"),
    "one-key": dict(B=1, H=2, HK=1, SQ=100, SK=1, D=128, dtype="float16"),
}

# The tuned baseline is the best of this grid, declared before any run.
LAUNCH_SPACE = {
    "BLOCK_M": [64, 128],
    "BLOCK_N": [32, 64, 128],
    "num_warps": [4, 8],
    "num_stages": [2, 3, 4],
}


def flops(case):
    return 4 * case["B"] * case["H"] * case["SQ"] * case["SK"] * case["D"]


def bytes_moved(case):
    return 4 * case["B"] * case["D"] * (case["SQ"] * case["H"] + case["SK"] * case["HK"])


def _sdpa(backend):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def run(q, k, v):
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=q.shape[1] != k.shape[1])

    return run


_COMPILED = {}


def _flex(q, k, v):
    if "flex" not in _COMPILED:
        from torch.nn.attention.flex_attention import flex_attention

        _COMPILED["flex"] = torch.compile(flex_attention, dynamic=False)
    return _COMPILED["flex"](q, k, v, enable_gqa=q.shape[1] != k.shape[1])


# Timed beside the kernel for the tables; never part of a verdict.
LIBRARIES = {
    "cuDNN": _sdpa("CUDNN_ATTENTION"),
    "FlashAttention-2": _sdpa("FLASH_ATTENTION"),
    "FlexAttention": _flex,
}
