"""Flash-attention backward: dQ, dK and dV of O = softmax(Q K^T / sqrt(D)) V, from O's gradient dO.

Q, K, V, O and dO are [B, H, S, D] with any strides and a contiguous last dimension, any S, D of 64 or 128, fp16 or
bf16, causal or not. LSE is what the forward pass wrote: [B, H, S] contiguous float32, the log-sum-exp of every row in
natural log. dQ, dK and dV are contiguous and have Q's type. No atomics: the same inputs give the same bits.
"""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK": 128, "STEP": 64}, num_warps=8, num_stages=3),
    triton.Config({"BLOCK": 128, "STEP": 64}, num_warps=8, num_stages=2),
    triton.Config({"BLOCK": 128, "STEP": 32}, num_warps=8, num_stages=3),
    triton.Config({"BLOCK": 64, "STEP": 64}, num_warps=8, num_stages=3),
    triton.Config({"BLOCK": 64, "STEP": 64}, num_warps=4, num_stages=2),
    triton.Config({"BLOCK": 64, "STEP": 32}, num_warps=4, num_stages=3),
]


@triton.jit
def _over_queries(
    dk,
    dv,
    k,
    v,
    q_ptrs,
    do_ptrs,
    LSE,
    DELTA,
    lo,
    hi,
    stride_qm,
    stride_dom,
    offs_m,
    offs_n,
    scale,
    S,
    STEP: tl.constexpr,
    DIAGONAL: tl.constexpr,
    EVEN: tl.constexpr,
):
    """Adds what the queries [lo, hi) give to dK and dV of a block of keys. Scores are transposed: keys are rows."""
    for start in range(lo, hi, STEP):
        rows = start + offs_m
        if EVEN:
            qt = tl.load(q_ptrs + start * stride_qm)
            lse = tl.load(LSE + rows)
        else:
            qt = tl.load(q_ptrs + start * stride_qm, mask=rows[None, :] < S, other=0.0)
            lse = tl.load(LSE + rows, mask=rows < S, other=0.0)
        st = tl.dot(k, qt)
        pt = tl.math.exp2(st * scale - (lse * 1.4426950408889634)[None, :])
        if DIAGONAL:
            pt = tl.where(rows[None, :] >= offs_n[:, None], pt, 0.0)
        if EVEN:
            do = tl.load(do_ptrs + start * stride_dom)
        else:
            do = tl.load(do_ptrs + start * stride_dom, mask=rows[:, None] < S, other=0.0)
        dv = tl.dot(pt.to(do.dtype), do, dv)
        dpt = tl.dot(v, tl.trans(do))
        delta = tl.load(DELTA + rows) if EVEN else tl.load(DELTA + rows, mask=rows < S, other=0.0)
        dst = pt * (dpt - delta[None, :])
        dk = tl.dot(dst.to(qt.dtype), tl.trans(qt), dk)
    return dk, dv


@triton.jit
def _over_keys(
    dq,
    q,
    do,
    lse,
    delta,
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
    STEP: tl.constexpr,
    DIAGONAL: tl.constexpr,
    EVEN: tl.constexpr,
):
    """Adds what the keys [lo, hi) give to dQ of a block of queries."""
    for start in range(lo, hi, STEP):
        cols = start + offs_n
        if EVEN:
            kt = tl.load(k_ptrs + start * stride_kn)
            vt = tl.load(v_ptrs + start * stride_vn)
        else:
            kt = tl.load(k_ptrs + start * stride_kn, mask=cols[None, :] < S, other=0.0)
            vt = tl.load(v_ptrs + start * stride_vn, mask=cols[None, :] < S, other=0.0)
        s = tl.dot(q, kt)
        p = tl.math.exp2(s * scale - lse[:, None])
        if DIAGONAL:
            p = tl.where(offs_m[:, None] >= cols[None, :], p, 0.0)
        if not EVEN:  # exp2(-lse) may be infinite, and infinity times the zeros loaded for such a key is not zero
            p = tl.where(cols[None, :] < S, p, 0.0)
        dp = tl.dot(do, vt)
        ds = p * (dp - delta[:, None])
        dq = tl.dot(ds.to(kt.dtype), tl.trans(kt), dq)
    return dq


@triton.autotune(configs=CONFIGS, key=["S", "D", "CAUSAL"])
@triton.heuristics({"EVEN": lambda a: a["S"] % a["BLOCK"] == 0 and a["S"] % a["STEP"] == 0})
@triton.jit
def _fa_bwd(
    Q,
    K,
    V,
    DO,
    LSE,
    DELTA,
    DQ,
    DK,
    DV,
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
    stride_dob,
    stride_doh,
    stride_dom,
    H,
    S,
    D: tl.constexpr,
    CAUSAL: tl.constexpr,
    EVEN: tl.constexpr,
    BLOCK: tl.constexpr,
    STEP: tl.constexpr,
):
    """dK and dV of BLOCK keys, then dQ of the BLOCK queries of the same rows: if causal, all programs do equal work."""
    block = tl.program_id(0)
    head = tl.program_id(1).to(tl.int64)
    Q += head // H * stride_qb + head % H * stride_qh
    K += head // H * stride_kb + head % H * stride_kh
    V += head // H * stride_vb + head % H * stride_vh
    DO += head // H * stride_dob + head % H * stride_doh
    LSE += head * S
    DELTA += head * S
    offs = block * BLOCK + tl.arange(0, BLOCK)
    offs_d = tl.arange(0, D)
    step = tl.arange(0, STEP)
    inside = offs < S
    scale = sm_scale * 1.4426950408889634  # exp(x) = exp2(x * log2(e))
    # Steps in [on, off) meet the diagonal: before them all keys are visible, after them all queries see these keys.
    on = (block * BLOCK) // STEP * STEP
    off = tl.cdiv((block + 1) * BLOCK, STEP) * STEP

    k_ptrs = K + offs[:, None] * stride_kn + offs_d[None, :]
    v_ptrs = V + offs[:, None] * stride_vn + offs_d[None, :]
    k = tl.load(k_ptrs) if EVEN else tl.load(k_ptrs, mask=inside[:, None], other=0.0)
    v = tl.load(v_ptrs) if EVEN else tl.load(v_ptrs, mask=inside[:, None], other=0.0)
    q_ptrs = Q + step[None, :] * stride_qm + offs_d[:, None]
    do_ptrs = DO + step[:, None] * stride_dom + offs_d[None, :]
    dk = tl.zeros([BLOCK, D], tl.float32)
    dv = tl.zeros([BLOCK, D], tl.float32)
    first = 0
    if CAUSAL:
        dk, dv = _over_queries(
            dk,
            dv,
            k,
            v,
            q_ptrs,
            do_ptrs,
            LSE,
            DELTA,
            on,
            tl.minimum(off, S),
            stride_qm,
            stride_dom,
            step,
            offs,
            scale,
            S,
            STEP,
            True,
            EVEN,
        )
        first = off
    dk, dv = _over_queries(
        dk,
        dv,
        k,
        v,
        q_ptrs,
        do_ptrs,
        LSE,
        DELTA,
        first,
        S,
        stride_qm,
        stride_dom,
        step,
        offs,
        scale,
        S,
        STEP,
        False,
        EVEN,
    )
    dk *= sm_scale
    grad = offs[:, None] * D + offs_d[None, :]
    if EVEN:
        tl.store(DV + head * S * D + grad, dv.to(DV.dtype.element_ty))
        tl.store(DK + head * S * D + grad, dk.to(DK.dtype.element_ty))
    else:
        tl.store(DV + head * S * D + grad, dv.to(DV.dtype.element_ty), mask=inside[:, None])
        tl.store(DK + head * S * D + grad, dk.to(DK.dtype.element_ty), mask=inside[:, None])

    q_ptrs = Q + offs[:, None] * stride_qm + offs_d[None, :]
    do_ptrs = DO + offs[:, None] * stride_dom + offs_d[None, :]
    q = tl.load(q_ptrs) if EVEN else tl.load(q_ptrs, mask=inside[:, None], other=0.0)
    do = tl.load(do_ptrs) if EVEN else tl.load(do_ptrs, mask=inside[:, None], other=0.0)
    lse = tl.load(LSE + offs) if EVEN else tl.load(LSE + offs, mask=inside, other=0.0)
    delta = tl.load(DELTA + offs) if EVEN else tl.load(DELTA + offs, mask=inside, other=0.0)
    lse *= 1.4426950408889634
    k_ptrs = K + step[None, :] * stride_kn + offs_d[:, None]
    v_ptrs = V + step[None, :] * stride_vn + offs_d[:, None]
    dq = tl.zeros([BLOCK, D], tl.float32)
    if CAUSAL:
        dq = _over_keys(
            dq, q, do, lse, delta, k_ptrs, v_ptrs, 0, on, stride_kn, stride_vn, offs, step, scale, S, STEP, False, True
        )
        dq = _over_keys(
            dq,
            q,
            do,
            lse,
            delta,
            k_ptrs,
            v_ptrs,
            on,
            tl.minimum(off, S),
            stride_kn,
            stride_vn,
            offs,
            step,
            scale,
            S,
            STEP,
            True,
            EVEN,
        )
    else:
        dq = _over_keys(
            dq, q, do, lse, delta, k_ptrs, v_ptrs, 0, S, stride_kn, stride_vn, offs, step, scale, S, STEP, False, EVEN
        )
    dq *= sm_scale
    grad = offs[:, None] * D + offs_d[None, :]
    if EVEN:
        tl.store(DQ + head * S * D + grad, dq.to(DQ.dtype.element_ty))
    else:
        tl.store(DQ + head * S * D + grad, dq.to(DQ.dtype.element_ty), mask=inside[:, None])


@triton.jit
def _delta(
    O,
    DO,
    DELTA,
    stride_ob,
    stride_oh,
    stride_om,
    stride_dob,
    stride_doh,
    stride_dom,
    H,
    S,
    D: tl.constexpr,
    ROWS: tl.constexpr,
):
    """DELTA = rowsum(O * dO), which both halves of the main kernel need."""
    head = tl.program_id(1).to(tl.int64)
    offs_m = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    offs_d = tl.arange(0, D)
    inside = offs_m < S
    O += head // H * stride_ob + head % H * stride_oh
    DO += head // H * stride_dob + head % H * stride_doh
    o = tl.load(O + offs_m[:, None] * stride_om + offs_d[None, :], mask=inside[:, None], other=0.0)
    do = tl.load(DO + offs_m[:, None] * stride_dom + offs_d[None, :], mask=inside[:, None], other=0.0)
    tl.store(DELTA + head * S + offs_m, tl.sum(o.to(tl.float32) * do.to(tl.float32), 1), mask=inside)


def kernel(q, k, v, o, lse, do, causal):
    B, H, S, D = q.shape
    if D not in (64, 128):
        raise ValueError(f"head dimension {D}: only 64 and 128 are supported")
    delta = torch.empty_like(lse)
    _delta[(triton.cdiv(S, 64), B * H)](
        o, do, delta, *o.stride()[:3], *do.stride()[:3], H, S, D=D, ROWS=64, num_warps=4
    )
    dq, dk, dv = (torch.empty((B, H, S, D), device=q.device, dtype=q.dtype) for _ in range(3))
    grid = lambda meta: (triton.cdiv(S, meta["BLOCK"]), B * H)  # noqa: E731
    _fa_bwd[grid](
        q,
        k,
        v,
        do,
        lse,
        delta,
        dq,
        dk,
        dv,
        D**-0.5,
        *q.stride()[:3],
        *k.stride()[:3],
        *v.stride()[:3],
        *do.stride()[:3],
        H,
        S,
        D=D,
        CAUSAL=causal,
    )
    return dq, dk, dv


# ----------------------------------------------------------------------------------------------------------------------
# The contract: what the result must be, on what it is tried, what it must cost at least.


def reference(q, k, v, o, lse, do, causal):
    B, H, S, D = q.shape
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    wide = torch.promote_types(q.dtype, torch.float32)
    hidden = torch.ones(S, S, dtype=torch.bool, device=q.device).triu(1) if causal else None
    for b in range(B):
        for h in range(H):
            qw, kw, vw, ow, dow = (t[b, h].to(wide) for t in (q, k, v, o, do))
            p = torch.exp(qw @ kw.T * D**-0.5 - lse[b, h].to(wide)[:, None])
            if hidden is not None:
                p = p.masked_fill(hidden, 0.0)
            ds = p * (dow @ vw.T - (ow * dow).sum(-1, keepdim=True))
            p, ds = p.to(q.dtype).to(wide), ds.to(q.dtype).to(wide)  # what a matrix product in this precision is fed
            dq[b, h] = ds @ kw * D**-0.5
            dk[b, h] = ds.T @ qw * D**-0.5
            dv[b, h] = p.T @ dow
    return dq, dk, dv


def inputs(case, generator):
    B, H, S, D = (case[n] for n in "BHSD")

    def tensor(size=1.0):
        x = torch.randn((B, H, S, D), generator=generator, device=generator.device, dtype=torch.float32)
        x = (x * size).to(getattr(torch, case["dtype"]))
        return x.transpose(1, 2).contiguous().transpose(1, 2) if case["bshd"] else x

    q, k, v = tensor(), tensor(), tensor()
    do = tensor(16.0)  # as loss scaling does it: gradients far above the smallest numbers of fp16
    hidden = torch.ones(S, S, dtype=torch.bool, device=q.device).triu(1) if case["causal"] else None
    heads, o, lse = max(1, (1 << 27) // S**2), [], []  # as many at a time as half a gigabyte of scores holds
    for qh, kh, vh in zip(*(t.flatten(0, 1).split(heads) for t in (q, k, v)), strict=True):
        s = qh.float() @ kh.float().mT * D**-0.5
        if hidden is not None:
            s = s.masked_fill(hidden, float("-inf"))
        o.append(torch.softmax(s, -1).to(vh.dtype) @ vh)
        lse.append(torch.logsumexp(s, -1))
    o, lse = torch.cat(o).view(B, H, S, D), torch.cat(lse).view(B, H, S)
    return {"q": q, "k": k, "v": v, "o": o, "lse": lse, "do": do, "causal": case["causal"]}


CASES = {
    "d128-4k": dict(B=4, H=32, S=4096, D=128, causal=False, bshd=False, dtype="float16"),
    "d128-4k-causal": dict(B=4, H=32, S=4096, D=128, causal=True, bshd=False, dtype="float16"),
    "d64-4k-causal": dict(B=4, H=32, S=4096, D=64, causal=True, bshd=False, dtype="float16"),
}
SMALL = {
    "d64-even-causal": dict(B=1, H=2, S=256, D=64, causal=True, bshd=False, dtype="float16"),
    "d64-ragged-bshd": dict(B=2, H=2, S=77, D=64, causal=False, bshd=True, dtype="float16"),
    "d128-ragged-causal": dict(B=1, H=1, S=130, D=128, causal=True, bshd=False, dtype="float16"),
}
HELD_OUT = {
    "d128-ragged": dict(B=2, H=8, S=2047, D=128, causal=False, bshd=False, dtype="float16"),
    "d128-ragged-causal-bf16": dict(B=2, H=6, S=1999, D=128, causal=True, bshd=False, dtype="bfloat16"),
    "d128-bshd-bf16": dict(B=1, H=8, S=2048, D=128, causal=False, bshd=True, dtype="bfloat16"),
    "d64-causal-bshd": dict(B=2, H=8, S=3072, D=64, causal=True, bshd=True, dtype="float16"),
    "d64-short-bf16": dict(B=3, H=4, S=77, D=64, causal=False, bshd=False, dtype="bfloat16"),
}

# The tuned baseline is the best of this grid, declared before any run.
LAUNCH_SPACE = {
    "BLOCK": [64, 128],
    "STEP": [32, 64, 128],
    "num_warps": [4, 8],
    "num_stages": [2, 3],
}


def flops(case):
    full = 10 * case["B"] * case["H"] * case["S"] ** 2 * case["D"]  # 2.5 times the forward pass, by convention
    return full // 2 if case["causal"] else full


def bytes_moved(case):
    rows = case["B"] * case["H"] * case["S"]
    return 2 * 8 * rows * case["D"] + 4 * rows


def _sdpa_backward(backend):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    kept = {}  # the forward graph of the last inputs, so that only the backward pass runs again; they stay alive in it

    def run(q, k, v, o, lse, do, causal):
        key = (id(q), id(k), id(v), causal)
        if key not in kept:
            kept.clear()
            leaves = [t.detach().requires_grad_() for t in (q, k, v)]
            with torch.enable_grad(), sdpa_kernel(getattr(SDPBackend, backend)):
                out = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=causal)
            kept[key] = out, leaves, (q, k, v)
        out, leaves, _ = kept[key]
        return torch.autograd.grad(out, leaves, do, retain_graph=True)

    return run


# Timed beside the kernel for the tables; never part of a verdict.
LIBRARIES = {"cuDNN": _sdpa_backward("CUDNN_ATTENTION"), "FlashAttention-2": _sdpa_backward("FLASH_ATTENTION")}
