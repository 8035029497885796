"""Attention of one new token to a cache of keys and values (decoding), split along the cache: two kernels.

Q is [B, H, D]; K and V are [B, S, HK, D] with H a multiple of HK (grouped-query attention), D of 64 or 128, fp16 or
bf16, any strides with a contiguous last dimension. LENGTHS is [B] int32: how much of the cache each sequence has, 1 to
S. O is [B, H, D] of Q's type. The first kernel attends to a share of the cache, for all heads that share keys; the
second merges the shares.
"""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_N": 128}, num_warps=8, num_stages=2),
    triton.Config({"BLOCK_N": 128}, num_warps=4, num_stages=2),
    triton.Config({"BLOCK_N": 64}, num_warps=4, num_stages=3),
    triton.Config({"BLOCK_N": 64}, num_warps=4, num_stages=4),
    triton.Config({"BLOCK_N": 64}, num_warps=2, num_stages=3),
    triton.Config({"BLOCK_N": 32}, num_warps=2, num_stages=4),
]
SHARE = 256  # fewest positions that are worth a block of their own
BLOCKS = 528  # what fills an H100: four for each of its 132 SMs


@triton.autotune(configs=CONFIGS, key=["S", "D", "GROUP", "SPLITS"])
@triton.jit
def _share(
    Q,
    K,
    V,
    LENGTHS,
    PARTS,
    LSE,
    scale,
    stride_qb,
    stride_qh,
    stride_kb,
    stride_ks,
    stride_kh,
    stride_vb,
    stride_vs,
    stride_vh,
    S,
    HK,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    D: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    b = (tl.program_id(0) // HK).to(tl.int64)
    hk = tl.program_id(0) % HK
    split = tl.program_id(1)
    length = tl.load(LENGTHS + b)
    # Shares are whole blocks: only the last block of a sequence needs a mask.
    share = tl.cdiv(tl.cdiv(length, SPLITS), BLOCK_N) * BLOCK_N
    start = split * share
    end = tl.minimum(start + share, length)

    heads = tl.arange(0, ROWS)  # a dot takes 16 rows; those beyond the group are not stored
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, D)
    q_ptrs = Q + b * stride_qb + (hk * GROUP + heads[:, None]) * stride_qh + offs_d[None, :]
    q = tl.load(q_ptrs, mask=heads[:, None] < GROUP, other=0.0)
    K += b * stride_kb + hk * stride_kh
    V += b * stride_vb + hk * stride_vh
    m_i = tl.full([ROWS], -float("inf"), tl.float32)
    l_i = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, D], tl.float32)
    for at in range(start, end, BLOCK_N):
        positions = (at + offs_n).to(tl.int64)
        inside = positions < end
        k = tl.load(K + positions[None, :] * stride_ks + offs_d[:, None], mask=inside[None, :], other=0.0)
        qk = tl.where(inside[None, :], tl.dot(q, k) * scale, -1.0e30)
        m_new = tl.maximum(m_i, tl.max(qk, 1))
        p = tl.math.exp2(qk - m_new[:, None])
        alpha = tl.math.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, 1)
        v = tl.load(V + positions[:, None] * stride_vs + offs_d[None, :], mask=inside[:, None], other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        m_i = m_new

    # A share that is empty leaves zeros, with a weight of zero.
    some = start < end
    acc = acc / tl.where(some, l_i, 1.0)[:, None]
    lse = tl.where(some, m_i + tl.math.log2(tl.where(some, l_i, 1.0)), -float("inf"))
    parts = ((b * HK + hk) * GROUP + heads) * SPLITS + split
    tl.store(PARTS + parts[:, None] * D + offs_d[None, :], acc, mask=heads[:, None] < GROUP)
    tl.store(LSE + parts, lse, mask=heads < GROUP)


@triton.jit
def _merge(PARTS, LSE, O, D: tl.constexpr, SPLITS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    splits = tl.arange(0, COLUMNS)
    offs_d = tl.arange(0, D)
    lse = tl.load(LSE + row * SPLITS + splits, mask=splits < SPLITS, other=-float("inf"))
    weights = tl.math.exp2(lse - tl.max(lse, 0))
    p_ptrs = PARTS + (row * SPLITS + splits[:, None]) * D + offs_d[None, :]
    parts = tl.load(p_ptrs, mask=splits[:, None] < SPLITS, other=0.0)
    o = tl.sum(parts * weights[:, None], 0) / tl.sum(weights, 0)
    tl.store(O + row * D + offs_d, o.to(O.dtype.element_ty))


def kernel(q, k, v, lengths):
    B, H, D = q.shape
    S, HK = k.shape[1:3]
    if D not in (64, 128) or H % HK:
        raise ValueError(f"{H} heads of {D} with {HK} of keys: only dimensions of 64 and 128 are supported")
    splits = max(1, min(triton.cdiv(S, SHARE), BLOCKS // (B * HK)))
    parts = torch.empty((B, H, splits, D), device=q.device, dtype=torch.float32)
    lse = torch.empty((B, H, splits), device=q.device, dtype=torch.float32)
    o = torch.empty((B, H, D), device=q.device, dtype=q.dtype)
    _share[(B * HK, splits)](
        q,
        k,
        v,
        lengths,
        parts,
        lse,
        D**-0.5 * 1.4426950408889634,  # exp(x) = exp2(x * log2(e))
        *q.stride()[:2],
        *k.stride()[:3],
        *v.stride()[:3],
        S,
        HK,
        GROUP=H // HK,
        ROWS=max(16, triton.next_power_of_2(H // HK)),
        D=D,
        SPLITS=splits,
    )
    _merge[(B * H,)](parts, lse, o, D=D, SPLITS=splits, COLUMNS=triton.next_power_of_2(splits), num_warps=4)
    return o


# ----------------------------------------------------------------------------------------------------------------------
# The contract: what the result must be, on what it is tried, what it must cost at least.


def reference(q, k, v, lengths):
    H, D = q.shape[1:]
    HK = k.shape[2]
    o = torch.empty_like(q)
    wide = torch.promote_types(q.dtype, torch.float32)
    for b, length in enumerate(lengths.tolist()):
        for g in range(HK):
            heads = slice(g * (H // HK), (g + 1) * (H // HK))
            s = (q[b, heads] @ k[b, :length, g].T).to(wide) * D**-0.5
            o[b, heads] = torch.softmax(s, -1).to(q.dtype) @ v[b, :length, g]
    return o


def _lengths(case):
    """Lengths that follow from the case: full, or spread over the upper three quarters of the cache."""
    S, spread = case["S"], max(1, case["S"] * 3 // 4) if case["uneven"] else 1
    return [S - b * 7919 % spread for b in range(case["B"])]


def inputs(case, generator):
    dtype = getattr(torch, case["dtype"])

    def tensor(*shape):
        return torch.randn(shape, generator=generator, device=generator.device, dtype=torch.float32).to(dtype)

    cache = case["B"], case["S"], case["HK"], case["D"]
    lengths = torch.tensor(_lengths(case), device=generator.device, dtype=torch.int32)
    return {
        "q": tensor(case["B"], case["H"], case["D"]),
        "k": tensor(*cache),
        "v": tensor(*cache),
        "lengths": lengths,
    }


CASES = {
    "1-64k": dict(B=1, H=32, HK=8, S=65536, D=128, uneven=False, dtype="bfloat16"),
    "16-8k": dict(B=16, H=32, HK=8, S=8192, D=128, uneven=False, dtype="bfloat16"),
    "32-4k-uneven": dict(B=32, H=64, HK=8, S=4096, D=128, uneven=True, dtype="bfloat16"),
    "128-1k": dict(B=128, H=32, HK=8, S=1024, D=128, uneven=False, dtype="float16"),
}
SMALL = {
    "one-long": dict(B=1, H=4, HK=1, S=2048, D=64, uneven=False, dtype="float16"),
    "uneven": dict(B=3, H=8, HK=2, S=700, D=128, uneven=True, dtype="float16"),
    "short": dict(B=2, H=2, HK=2, S=77, D=64, uneven=True, dtype="bfloat16"),
}
HELD_OUT = {
    "wide-group": dict(B=4, H=32, HK=1, S=3000, D=128, uneven=True, dtype="bfloat16"),
    "no-groups": dict(B=7, H=12, HK=12, S=1999, D=64, uneven=True, dtype="float16"),
    "three-heads": dict(B=2, H=24, HK=8, S=16384, D=128, uneven=True, dtype="bfloat16"),
    "many-short": dict(B=96, H=16, HK=8, S=130, D=64, uneven=True, dtype="float16"),
    "one-position": dict(B=2, H=8, HK=4, S=1, D=128, uneven=False, dtype="bfloat16"),
}

# The tuned baseline is the best of this grid, declared before any run.
LAUNCH_SPACE = {
    "BLOCK_N": [32, 64, 128],
    "num_warps": [2, 4, 8],
    "num_stages": [2, 3, 4],
}


def flops(case):
    return 4 * sum(_lengths(case)) * case["H"] * case["D"]


def bytes_moved(case):
    return 4 * sum(_lengths(case)) * case["HK"] * case["D"] + 4 * case["B"] * case["H"] * case["D"]


def _sdpa(q, k, v, lengths):
    hidden = torch.arange(k.shape[1], device=q.device)[None, :] >= lengths[:, None]
    o = torch.nn.functional.scaled_dot_product_attention(
        q[:, :, None], k.transpose(1, 2), v.transpose(1, 2), attn_mask=~hidden[:, None, None], enable_gqa=True
    )
    return o[:, :, 0]


_PLANS = {}  # FlashInfer plans on the host once for all layers of a step; sizes say all of a case's lengths
_PAGE = 16


def _flashinfer(q, k, v, lengths):
    B, S, HK, D = k.shape
    sizes = q.shape, k.shape, q.dtype
    if S % _PAGE:
        raise ValueError(f"a cache of {S} positions has no whole pages of {_PAGE}")
    pages = [x.view(B * S // _PAGE, _PAGE, HK, D) for x in (k, v)]
    if sizes not in _PLANS:
        import flashinfer

        used = (lengths + _PAGE - 1) // _PAGE
        ends = torch.nn.functional.pad(used.cumsum(0), (1, 0)).to(torch.int32)
        table = torch.cat([torch.arange(n) + b * S // _PAGE for b, n in enumerate(used.tolist())])
        space = torch.empty(256 << 20, device=q.device, dtype=torch.uint8)
        plan = flashinfer.BatchDecodeWithPagedKVCacheWrapper(space, "NHD", use_tensor_cores=q.shape[1] // HK >= 4)
        last = (lengths - 1) % _PAGE + 1
        plan.plan(ends, table.to(q.device, torch.int32), last, q.shape[1], HK, D, _PAGE, q_data_type=q.dtype)
        _PLANS[sizes] = plan
    return _PLANS[sizes].run(q, tuple(pages))


# Timed beside the kernel for the tables; never part of a verdict.
LIBRARIES = {"SDPA": _sdpa, "FlashInfer": _flashinfer}
