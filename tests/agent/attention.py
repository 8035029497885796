"""Attention kernels in a style that is not that of `kernels/`: scores scaled after the dot, tl.exp, pointers that the
loop advances, one loop over all keys (or queries) that is masked throughout.

FORWARD gives the output and the natural log-sum-exp; GRADIENT goes the other way, over the queries of a block of keys.
Both come with a contract, so that the judge can check a rewrite.
"""

from tests.agent.composing import HEADER

FORWARD = f"""{HEADER}

@triton.jit
def _attention(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, sm_scale, stride_h, stride_s, n_ctx,
    CAUSAL: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, HEAD: tl.constexpr,
):
    tile = tl.program_id(0)
    base = tl.program_id(1) * stride_h
    rows = tile * BLOCK_Q + tl.arange(0, BLOCK_Q)
    cols = tl.arange(0, BLOCK_K)
    dims = tl.arange(0, HEAD)
    inside = rows[:, None] < n_ctx
    q = tl.load(q_ptr + base + rows[:, None] * stride_s + dims[None, :], mask=inside, other=0.0)
    k_ptrs = k_ptr + base + cols[None, :] * stride_s + dims[:, None]
    v_ptrs = v_ptr + base + cols[:, None] * stride_s + dims[None, :]
    peak = tl.full([BLOCK_Q], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_Q], tl.float32)
    out = tl.zeros([BLOCK_Q, HEAD], tl.float32)
    end = tl.minimum((tile + 1) * BLOCK_Q, n_ctx) if CAUSAL else n_ctx

    # One pass over all keys.
    for start in range(0, end, BLOCK_K):
        here = start + cols
        k = tl.load(k_ptrs, mask=here[None, :] < n_ctx, other=0.0)
        scores = tl.zeros([BLOCK_Q, BLOCK_K], tl.float32)
        scores += tl.dot(q, k)
        scores *= sm_scale  # the scores, scaled
        scores = tl.where(here[None, :] < n_ctx, scores, -1.0e9)
        if CAUSAL:
            # No query sees a later key.
            scores = tl.where(rows[:, None] >= here[None, :], scores, float("-inf"))
        new = tl.maximum(peak, tl.max(scores, 1))
        weights = tl.exp(scores - new[:, None])
        shrink = tl.exp(peak - new)
        total = total * shrink + tl.sum(weights, 1)
        v = tl.load(v_ptrs, mask=here[:, None] < n_ctx, other=0.0)
        out = out * shrink[:, None] + tl.dot(weights.to(v.dtype), v)
        peak = new
        k_ptrs += BLOCK_K * stride_s
        v_ptrs += BLOCK_K * stride_s
    out /= total[:, None]
    peak += tl.log(total)
    tl.store(lse_ptr + tl.program_id(1) * n_ctx + rows, peak, mask=rows < n_ctx)
    tl.store(o_ptr + base + rows[:, None] * stride_s + dims[None, :], out.to(q.dtype), mask=inside)


def kernel(q, k, v, causal, block_q, block_k):
    heads, n_ctx, head = q.shape
    o = torch.empty_like(q)
    lse = torch.empty((heads, n_ctx), device=q.device, dtype=torch.float32)
    _attention[(triton.cdiv(n_ctx, block_q), heads)](
        q, k, v, o, lse, head**-0.5, q.stride(0), q.stride(1), n_ctx,
        CAUSAL=causal, BLOCK_Q=block_q, BLOCK_K=block_k, HEAD=head,
    )
    return o, lse
"""

GRADIENT = f"""{HEADER}

@triton.jit
def _gradient(
    q_ptr, k_ptr, do_ptr, lse_ptr, dv_ptr, sm_scale, stride_h, stride_s, n_ctx,
    BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, HEAD: tl.constexpr,
):
    tile = tl.program_id(0)
    base = tl.program_id(1) * stride_h
    keys = tile * BLOCK_K + tl.arange(0, BLOCK_K)
    steps = tl.arange(0, BLOCK_Q)
    dims = tl.arange(0, HEAD)
    inside = keys[:, None] < n_ctx
    k = tl.load(k_ptr + base + keys[:, None] * stride_s + dims[None, :], mask=inside, other=0.0)
    dv = tl.zeros([BLOCK_K, HEAD], tl.float32)
    for block in range(tile * BLOCK_K // BLOCK_Q, tl.cdiv(n_ctx, BLOCK_Q)):
        rows = block * BLOCK_Q + steps
        at = base + rows[:, None] * stride_s + dims[None, :]
        q = tl.load(q_ptr + at, mask=rows[:, None] < n_ctx, other=0.0)
        lse = tl.load(lse_ptr + tl.program_id(1) * n_ctx + rows, mask=rows < n_ctx, other=float("inf"))
        scores = tl.dot(k, tl.trans(q)) * sm_scale
        weights = tl.exp(scores - lse[None, :])
        hidden = keys[:, None] > rows[None, :]
        weights = tl.where(hidden, 0.0, weights)
        do = tl.load(do_ptr + at, mask=rows[:, None] < n_ctx, other=0.0)
        dv += tl.dot(weights.to(do.dtype), do)
    tl.store(dv_ptr + base + keys[:, None] * stride_s + dims[None, :], dv.to(k.dtype), mask=inside)


def kernel(q, k, do, lse, block_q, block_k):
    heads, n_ctx, head = q.shape
    dv = torch.empty_like(q)
    _gradient[(triton.cdiv(n_ctx, block_k), heads)](
        q, k, do, lse, dv, head**-0.5, q.stride(0), q.stride(1), n_ctx,
        BLOCK_Q=block_q, BLOCK_K=block_k, HEAD=head,
    )
    return dv
"""

_SHARED = """
def _scores(q, k, causal):
    scores = (q @ k.transpose(1, 2)).to(torch.promote_types(q.dtype, torch.float32)) * q.shape[2] ** -0.5
    if causal:
        hidden = torch.ones(scores.shape[1:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    return scores


def _tensors(case, generator, *names):
    shape = (case["heads"], case["n"], 32)
    made = {n: torch.randn(shape, generator=generator, device=generator.device) for n in names}
    return {n: t.to(getattr(torch, case["dtype"])) for n, t in made.items()}


def flops(case):
    return 4 * case["heads"] * case["n"] ** 2 * 32


def bytes_moved(case):
    return 8 * case["heads"] * case["n"] * 32
"""
FORWARD_CONTRACT = f"""{_SHARED}

def reference(q, k, v, causal, block_q, block_k):
    scores = _scores(q, k, causal)
    return torch.softmax(scores, -1).to(q.dtype) @ v, torch.logsumexp(scores, -1)


def inputs(case, generator):
    blocks = dict(block_q=case["block_q"], block_k=case["block_k"])
    return _tensors(case, generator, "q", "k", "v") | {{"causal": case["causal"]}} | blocks


CASES = {{"long": dict(heads=8, n=2048, causal=True, dtype="float16", block_q=64, block_k=64)}}
SMALL = {{
    "even": dict(heads=2, n=128, causal=False, dtype="float16", block_q=32, block_k=32),
    "causal": dict(heads=1, n=128, causal=True, dtype="float16", block_q=32, block_k=16),
    "ragged": dict(heads=1, n=90, causal=True, dtype="float16", block_q=16, block_k=32),
    "wide": dict(heads=1, n=50, causal=False, dtype="float16", block_q=32, block_k=16),
}}
HELD_OUT = {{"other": dict(heads=2, n=333, causal=True, dtype="float16", block_q=32, block_k=32)}}
"""
GRADIENT_CONTRACT = f"""{_SHARED}

def reference(q, k, do, lse, block_q, block_k):
    weights = torch.exp(_scores(q, k, True) - lse[:, :, None])
    return weights.to(q.dtype).transpose(1, 2) @ do


def inputs(case, generator):
    made = _tensors(case, generator, "q", "k", "do")
    lse = torch.logsumexp(_scores(made["q"], made["k"], True), -1).float()
    return made | {{"lse": lse, "block_q": case["block_q"], "block_k": case["block_k"]}}


CASES = {{"long": dict(heads=8, n=2048, dtype="float16", block_q=64, block_k=64)}}
SMALL = {{
    "even": dict(heads=1, n=128, dtype="float16", block_q=16, block_k=32),
    "ragged": dict(heads=2, n=90, dtype="float16", block_q=32, block_k=16),
}}
HELD_OUT = {{"other": dict(heads=2, n=333, dtype="float16", block_q=32, block_k=32)}}
"""
