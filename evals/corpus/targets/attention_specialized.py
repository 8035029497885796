"""Flash-attention forward in Gluon, warp-specialized: one producer warp loads by TMA, two warpgroups compute.

A target of the corpora, and the fixture of what reads TTGIR with mbarriers. Contiguous fp16 or bf16, S a multiple of
128, D of 64 or 128, not causal; K and V may have fewer heads. Triton's interpreter does not run it.
"""

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

_STAGES = gl.constexpr(2)


@gluon.jit
def _produce(q_desc, k_desc, v_desc, q_mem, k_mem, v_mem, bars, row, kv_row, S, M: gl.constexpr, N: gl.constexpr):
    """One warp: loads Q for both consumers, then K and V tiles as their places become free."""
    q_ready, k_ready, v_ready, k_free, v_free = bars
    mbarrier.expect(q_ready, 2 * q_desc.block_type.nbytes)
    tma.async_copy_global_to_shared(q_desc, [row, 0], q_ready, q_mem.index(0))
    tma.async_copy_global_to_shared(q_desc, [row + M, 0], q_ready, q_mem.index(1))
    for j in range(S // N):
        place, turn = j % _STAGES, (j // _STAGES) & 1
        mbarrier.wait(k_free.index(place), turn ^ 1)
        mbarrier.expect(k_ready.index(place), k_desc.block_type.nbytes)
        tma.async_copy_global_to_shared(k_desc, [kv_row + j * N, 0], k_ready.index(place), k_mem.index(place))
        mbarrier.wait(v_free.index(place), turn ^ 1)
        mbarrier.expect(v_ready.index(place), v_desc.block_type.nbytes)
        tma.async_copy_global_to_shared(v_desc, [kv_row + j * N, 0], v_ready.index(place), v_mem.index(place))


@gluon.jit
def _consume(
    q_mem,
    k_mem,
    v_mem,
    bars,
    O,
    LSE,
    scale,
    row,
    S,
    WHICH: gl.constexpr,
    M: gl.constexpr,
    N: gl.constexpr,
    D: gl.constexpr,
):
    """One warpgroup: M rows. The product with V of one block runs beside the product with K of the next."""
    q_ready, k_ready, v_ready, k_free, v_free = bars
    SCORES: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, N, 16])
    RESULT: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, D, 16])
    FIRST: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=RESULT, k_width=2)
    ROWS: gl.constexpr = gl.SliceLayout(1, SCORES)
    OUT: gl.constexpr = gl.SliceLayout(1, RESULT)
    dtype: gl.constexpr = O.dtype.element_ty
    acc = gl.zeros([M, D], gl.float32, RESULT)
    none = gl.zeros([M, N], gl.float32, SCORES)
    mbarrier.wait(q_ready, 0)
    q = q_mem.index(WHICH)
    mbarrier.wait(k_ready.index(0), 0)
    s = warpgroup_mma(q, k_mem.index(0).permute((1, 0)), none, use_acc=False, is_async=True)
    s = warpgroup_mma_wait(0, deps=[s])
    mbarrier.arrive(k_free.index(0))
    m = gl.max(s, 1) * scale
    p = gl.exp2(s * scale - gl.expand_dims(m, 1))
    l = gl.sum(p, 1)
    weights = gl.convert_layout(p.to(dtype), FIRST)
    blocks = S // N
    for j in range(1, blocks):
        place, turn = j % _STAGES, (j // _STAGES) & 1
        mbarrier.wait(k_ready.index(place), turn)
        s = warpgroup_mma(q, k_mem.index(place).permute((1, 0)), none, use_acc=False, is_async=True)
        last, before = (j - 1) % _STAGES, ((j - 1) // _STAGES) & 1
        mbarrier.wait(v_ready.index(last), before)
        acc = warpgroup_mma(weights, v_mem.index(last), acc, is_async=True)
        s = warpgroup_mma_wait(1, deps=[s])
        mbarrier.arrive(k_free.index(place))
        m_new = gl.maximum(m, gl.max(s, 1) * scale)
        p = gl.exp2(s * scale - gl.expand_dims(m_new, 1))
        alpha = gl.exp2(m - m_new)
        l = l * alpha + gl.sum(p, 1)
        m = m_new
        acc = warpgroup_mma_wait(0, deps=[acc])
        mbarrier.arrive(v_free.index(last))
        acc = acc * gl.expand_dims(gl.convert_layout(alpha, OUT), 1)
        weights = gl.convert_layout(p.to(dtype), FIRST)
    last, before = (blocks - 1) % _STAGES, ((blocks - 1) // _STAGES) & 1
    mbarrier.wait(v_ready.index(last), before)
    acc = warpgroup_mma(weights, v_mem.index(last), acc, is_async=True)
    acc = warpgroup_mma_wait(0, deps=[acc])
    mbarrier.arrive(v_free.index(last))
    acc = acc / gl.expand_dims(gl.convert_layout(l, OUT), 1)
    first = row + WHICH * M
    rows = first + gl.arange(0, M, OUT)
    columns = gl.arange(0, D, gl.SliceLayout(0, RESULT))
    gl.store(O + gl.expand_dims(rows, 1).to(gl.int64) * D + gl.expand_dims(columns, 0), acc.to(dtype))
    gl.store(LSE + first + gl.arange(0, M, ROWS), (m + gl.log2(l)) * 0.6931471805599453)


@gluon.jit
def _attention(
    q_desc,
    k_desc,
    v_desc,
    O,
    LSE,
    sm_scale,
    H,
    S,
    GROUP: gl.constexpr,
    D: gl.constexpr,
    M: gl.constexpr,
    N: gl.constexpr,
):
    """Two consumer warpgroups of M rows each and one producer warp."""
    dtype: gl.constexpr = O.dtype.element_ty
    q_mem = gl.allocate_shared_memory(dtype, [2, M, D], q_desc.layout)
    k_mem = gl.allocate_shared_memory(dtype, [_STAGES, N, D], k_desc.layout)
    v_mem = gl.allocate_shared_memory(dtype, [_STAGES, N, D], v_desc.layout)
    q_ready = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    k_ready = gl.allocate_shared_memory(gl.int64, [_STAGES, 1], mbarrier.MBarrierLayout())
    v_ready = gl.allocate_shared_memory(gl.int64, [_STAGES, 1], mbarrier.MBarrierLayout())
    k_free = gl.allocate_shared_memory(gl.int64, [_STAGES, 1], mbarrier.MBarrierLayout())
    v_free = gl.allocate_shared_memory(gl.int64, [_STAGES, 1], mbarrier.MBarrierLayout())
    mbarrier.init(q_ready, count=1)
    for i in gl.static_range(_STAGES):
        mbarrier.init(k_ready.index(i), count=1)
        mbarrier.init(v_ready.index(i), count=1)
        mbarrier.init(k_free.index(i), count=2)
        mbarrier.init(v_free.index(i), count=2)
    bars = (q_ready, k_ready, v_ready, k_free, v_free)
    head = gl.program_id(1)
    row = head * S + gl.program_id(0) * 2 * M
    kv_row = (head // H * (H // GROUP) + head % H // GROUP) * S
    scale = sm_scale * 1.4426950408889634
    gl.warp_specialize(
        [
            (_consume, (q_mem, k_mem, v_mem, bars, O, LSE, scale, row, S, 0, M, N, D)),
            (_consume, (q_mem, k_mem, v_mem, bars, O, LSE, scale, row, S, 1, M, N, D)),
            (_produce, (q_desc, k_desc, v_desc, q_mem, k_mem, v_mem, bars, row, kv_row, S, M, N)),
        ],
        [4, 1],
        [240, 24],
    )


def kernel(q, k, v):
    B, H, S, D = q.shape
    if S % 128 or D not in (64, 128) or not all(t.is_contiguous() for t in (q, k, v)):
        raise ValueError("contiguous tensors, S a multiple of 128, D of 64 or 128")
    M, N = 64, 128
    layout = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)

    def described(t, rows):
        return TensorDescriptor.from_tensor(t.view(-1, D), [rows, D], layout)

    o = torch.empty_like(q)
    lse = torch.empty((B, H, S), device=q.device, dtype=torch.float32)
    descriptors = described(q, M), described(k, N), described(v, N)
    grid = (S // (2 * M), B * H)
    _attention[grid](*descriptors, o, lse, D**-0.5, H, S, GROUP=H // k.shape[1], D=D, M=M, N=N, num_warps=4)
    return o, lse


def reference(q, k, v):
    B, H, S, D = q.shape
    wide = torch.promote_types(q.dtype, torch.float32)
    o, lse = torch.empty_like(q), torch.empty((B, H, S), device=q.device, dtype=wide)
    for b in range(B):
        for h in range(H):
            g = h // (H // k.shape[1])
            s = (q[b, h] @ k[b, g].T).to(wide) * D**-0.5
            lse[b, h] = torch.logsumexp(s, -1)
            o[b, h] = torch.softmax(s, -1).to(q.dtype) @ v[b, g]
    return o, lse


def inputs(case, generator):
    dtype = getattr(torch, case["dtype"])

    def tensor(heads):
        shape = (case["B"], heads, case["S"], case["D"])
        return torch.randn(shape, generator=generator, device=generator.device, dtype=torch.float32).to(dtype)

    return {"q": tensor(case["H"]), "k": tensor(case["HK"]), "v": tensor(case["HK"])}


CASES = {"d128-4k": dict(B=1, H=16, HK=16, S=4096, D=128, dtype="float16")}
SMALL = {"d64": dict(B=1, H=2, HK=1, S=256, D=64, dtype="float16")}
HELD_OUT = {
    "one-block": dict(B=2, H=4, HK=2, S=128, D=128, dtype="bfloat16"),
    "three-blocks": dict(B=1, H=2, HK=1, S=384, D=128, dtype="float16"),
}
LAUNCH_SPACE = {}


def flops(case):
    return 4 * case["B"] * case["H"] * case["S"] ** 2 * case["D"]


def bytes_moved(case):
    rows = case["B"] * case["S"]
    return 2 * rows * case["D"] * (2 * case["H"] + 2 * case["HK"]) + 4 * rows * case["H"]
