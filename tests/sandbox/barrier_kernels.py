"""Kernels with barriers for the deadlock simulator to read, as TTGIR made here by the installed Triton for sm_90.

Triton's own pipelining (cp.async and TMA), its warp specialization, and hand-written producers and consumers in Gluon.
"""

from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait

SM90 = GPUTarget("cuda", 90, 32)


@triton.jit
def _gemm(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, WS: tl.constexpr):
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BM, BK])
    b = tl.make_tensor_descriptor(b_ptr, [K, N], [N, 1], [BK, BN])
    c = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BM, BN])
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in tl.range(tl.cdiv(K, BK), warp_specialize=WS):
        acc = tl.dot(a.load([m, k * BK]), b.load([k * BK, n]), acc)
    c.store([m, n], acc.to(tl.float16))


@triton.jit
def _persistent(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, WS: tl.constexpr):
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BM, BK])
    b = tl.make_tensor_descriptor(b_ptr, [K, N], [N, 1], [BK, BN])
    c = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BM, BN])
    across = tl.cdiv(N, BN)
    for t in tl.range(
        tl.program_id(0), tl.cdiv(M, BM) * across, tl.num_programs(0), flatten=not WS, warp_specialize=WS
    ):
        m, n = t // across * BM, t % across * BN
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k in tl.range(tl.cdiv(K, BK)):
            acc = tl.dot(a.load([m, k * BK]), b.load([k * BK, n]), acc)
        c.store([m, n], acc.to(tl.float16))


@triton.jit
def _cp_async(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        acc = tl.dot(tl.load(a_ptr + m[:, None] * K + k[None, :]), tl.load(b_ptr + k[:, None] * N + n[None, :]), acc)
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc.to(tl.float16))


# two consumers of one producer, in Gluon ------------------------------------------------------------------------------


@gluon.jit
def _produce(a, b, a_mem, b_mem, full, empty, K, BK: gl.constexpr, S: gl.constexpr):
    for i in range(gl.cdiv(K, BK)):
        s = i % S
        mbarrier.wait(empty.index(s), ((i // S) & 1) ^ 1)
        mbarrier.expect(full.index(s), a.block_type.nbytes + b.block_type.nbytes)
        tma.async_copy_global_to_shared(a, [0, i * BK], full.index(s), a_mem.index(s))
        tma.async_copy_global_to_shared(b, [i * BK, 0], full.index(s), b_mem.index(s))


@gluon.jit
def _consume(
    c_ptr, a_mem, b_mem, full, empty, K, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, S: gl.constexpr
):
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BN, 16])
    acc = gl.zeros((BM, BN), gl.float32, layout)
    for i in range(gl.cdiv(K, BK)):
        s = i % S
        mbarrier.wait(full.index(s), (i // S) & 1)
        acc = warpgroup_mma(a_mem.index(s), b_mem.index(s), acc, is_async=True)
        acc = warpgroup_mma_wait(0, (acc,))
        mbarrier.arrive(empty.index(s), count=1)
    rows, columns = gl.arange(0, BM, gl.SliceLayout(1, layout)), gl.arange(0, BN, gl.SliceLayout(0, layout))
    gl.store(c_ptr + rows[:, None] * BN + columns[None, :], acc)


@gluon.jit
def _two(a, b, c_ptr, K, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, S: gl.constexpr):
    a_mem = gl.allocate_shared_memory(a.dtype, [S, BM, BK], a.layout)
    b_mem = gl.allocate_shared_memory(b.dtype, [S, BK, BN], b.layout)
    full = gl.allocate_shared_memory(gl.int64, [S, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [S, 1], mbarrier.MBarrierLayout())
    for s in gl.static_range(S):
        mbarrier.init(full.index(s), count=1)
        mbarrier.init(empty.index(s), count=2)
    gl.warp_specialize(
        [
            (_consume, (c_ptr, a_mem, b_mem, full, empty, K, BM, BN, BK, S)),
            (_consume, (c_ptr, a_mem, b_mem, full, empty, K, BM, BN, BK, S)),
            (_produce, (a, b, a_mem, b_mem, full, empty, K, BK, S)),
        ],
        [4, 1],
        [240, 24],
    )
    for s in gl.static_range(S):
        mbarrier.invalidate(full.index(s))
        mbarrier.invalidate(empty.index(s))


# attention: K and V in rings of their own, each consumer with its own rows of Q, in Gluon -----------------------------


@gluon.jit
def _attention_loads(q, k, v, mem, bars, N, BM: gl.constexpr, BN: gl.constexpr, S: gl.constexpr):
    q_mem, k_mem, v_mem = mem
    q_bar, k_full, k_empty, v_full, v_empty = bars
    row = gl.program_id(0) * 2 * BM
    for c in gl.static_range(2):
        mbarrier.expect(q_bar.index(c), q.block_type.nbytes)
        tma.async_copy_global_to_shared(q, [row + c * BM, 0], q_bar.index(c), q_mem.index(c))
    for i in range(gl.cdiv(N, BN)):
        s = i % S
        free = ((i // S) & 1) ^ 1
        mbarrier.wait(k_empty.index(s), free)
        mbarrier.expect(k_full.index(s), k.block_type.nbytes)
        tma.async_copy_global_to_shared(k, [i * BN, 0], k_full.index(s), k_mem.index(s))
        mbarrier.wait(v_empty.index(s), free)
        mbarrier.expect(v_full.index(s), v.block_type.nbytes)
        tma.async_copy_global_to_shared(v, [i * BN, 0], v_full.index(s), v_mem.index(s))


@gluon.jit
def _attend(
    out, mem, bars, N, which: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, D: gl.constexpr, S: gl.constexpr
):
    q_mem, k_mem, v_mem = mem
    q_bar, k_full, k_empty, v_full, v_empty = bars
    scores: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BN, 16])
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, D, 16])
    operand: gl.constexpr = gl.DotOperandLayout(0, layout, 2)
    acc, total = gl.zeros((BM, D), gl.float32, layout), gl.zeros((BM,), gl.float32, gl.SliceLayout(1, scores))
    mbarrier.wait(q_bar.index(which), 0)
    for i in range(gl.cdiv(N, BN)):
        s, phase = i % S, (i // S) & 1
        mbarrier.wait(k_full.index(s), phase)
        kt = k_mem.index(s).permute((1, 0))
        x = warpgroup_mma(q_mem.index(which), kt, gl.zeros((BM, BN), gl.float32, scores), is_async=True)
        x = warpgroup_mma_wait(0, (x,))
        mbarrier.arrive(k_empty.index(s), count=1)
        p = gl.exp2(x)
        total += gl.sum(p, 1)
        mbarrier.wait(v_full.index(s), phase)
        acc = warpgroup_mma(gl.convert_layout(p.to(gl.float16), operand), v_mem.index(s), acc, is_async=True)
        acc = warpgroup_mma_wait(0, (acc,))
        mbarrier.arrive(v_empty.index(s), count=1)
    acc = acc / gl.convert_layout(total, gl.SliceLayout(1, layout))[:, None]
    rows = (gl.program_id(0) * 2 + which) * BM + gl.arange(0, BM, gl.SliceLayout(1, layout))
    gl.store(out + rows[:, None] * D + gl.arange(0, D, gl.SliceLayout(0, layout))[None, :], acc)


@gluon.jit
def _attention(q, k, v, out, N, BM: gl.constexpr, BN: gl.constexpr, D: gl.constexpr, S: gl.constexpr):
    q_mem = gl.allocate_shared_memory(q.dtype, [2, BM, D], q.layout)
    k_mem = gl.allocate_shared_memory(k.dtype, [S, BN, D], k.layout)
    v_mem = gl.allocate_shared_memory(v.dtype, [S, BN, D], v.layout)
    q_bar = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    k_full = gl.allocate_shared_memory(gl.int64, [S, 1], mbarrier.MBarrierLayout())
    k_empty = gl.allocate_shared_memory(gl.int64, [S, 1], mbarrier.MBarrierLayout())
    v_full = gl.allocate_shared_memory(gl.int64, [S, 1], mbarrier.MBarrierLayout())
    v_empty = gl.allocate_shared_memory(gl.int64, [S, 1], mbarrier.MBarrierLayout())
    for s in gl.static_range(2):
        mbarrier.init(q_bar.index(s), count=1)
    for s in gl.static_range(S):
        mbarrier.init(k_full.index(s), count=1)
        mbarrier.init(v_full.index(s), count=1)
        mbarrier.init(k_empty.index(s), count=2)
        mbarrier.init(v_empty.index(s), count=2)
    mem, bars = (q_mem, k_mem, v_mem), (q_bar, k_full, k_empty, v_full, v_empty)
    gl.warp_specialize(
        [
            (_attend, (out, mem, bars, N, 0, BM, BN, D, S)),
            (_attend, (out, mem, bars, N, 1, BM, BN, D, S)),
            (_attention_loads, (q, k, v, mem, bars, N, BM, BN, S)),
        ],
        [4, 1],
        [240, 24],
    )


# building -------------------------------------------------------------------------------------------------------------


def ttgir_of(name: str) -> str:
    """The TTGIR of one of the kernels above; the persistent ones are named for what Triton does with their loop."""
    triton_kernels: dict[str, tuple[Any, dict[str, Any]]] = {
        "gemm": (_gemm, {"WS": False}),
        "gemm_specialized": (_gemm, {"WS": True}),
        "persistent_flattened": (_persistent, {"WS": False}),
        "persistent_specialized": (_persistent, {"WS": True}),
        "cp_async": (_cp_async, {}),
    }
    source: ASTSource
    if name in triton_kernels:
        function, more = triton_kernels[name]
        constants = {"BM": 128, "BN": 128, "BK": 64, **more}
        pointers = dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), "*fp16")
        signature = pointers | dict.fromkeys("MNK", "i32") | dict.fromkeys(constants, "constexpr")
        source = ASTSource(function, signature, constants, {(i,): [["tt.divisibility", 16]] for i in range(6)})
    elif name == "two_consumers":
        constants = {"BM": 64, "BN": 128, "BK": 64, "S": 3}
        signature = {"a": _descriptor(64, 64), "b": _descriptor(64, 128), "c_ptr": "*fp32", "K": "i32"}
        source = GluonASTSource(_two, signature | dict.fromkeys(constants, "constexpr"), constants)
    else:
        constants = {"BM": 64, "BN": 64, "D": 64, "S": 2}
        signature = {x: _descriptor(64, 64) for x in "qkv"} | {"out": "*fp32", "N": "i32"}
        source = GluonASTSource(_attention, signature | dict.fromkeys(constants, "constexpr"), constants)
    built = triton.compile(source, target=SM90, options={"num_warps": 4, "num_stages": 3})
    return str(built.asm["ttgir"])


def _descriptor(rows: int, columns: int) -> str:
    layout = gl.NVMMASharedLayout.get_default_for([rows, columns], gl.float16)
    return f"tensordesc<fp16[{rows}, {columns}],{layout!r}>"
