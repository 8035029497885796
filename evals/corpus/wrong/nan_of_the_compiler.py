# does: asks for warp specialization at D = 64: right as written, and on Hopper Triton 3.6 made NaN of such a kernel
# target: fa_fwd
# stage: results, time
# needs: gpu
import torch
import triton
import triton.language as tl

CONFIGS = [triton.Config({"BLOCK_M": 128, "BLOCK_N": 128}, num_warps=4, num_stages=3)]


def _descriptor_fits(pointer, strides, *moves):
    """Whether a descriptor can address a tile: contiguous in one dimension, in steps of 16 bytes in all others."""
    inner, *outer = sorted(strides)
    steps = [s * pointer.element_size() for s in (*outer, *moves)]
    return inner == 1 and pointer.data_ptr() % 16 == 0 and all(s % 16 == 0 for s in steps)


def _descriptor_memory(size, alignment, stream):
    """Device memory for the descriptors that a kernel makes."""
    return torch.empty(size, device="cuda", dtype=torch.int8)


@triton.autotune(configs=CONFIGS, key=["S", "D", "CAUSAL"])
@triton.heuristics({"EVEN": lambda a: a["S"] % a["BLOCK_M"] == 0 and a["S"] % a["BLOCK_N"] == 0})
@triton.heuristics(
    {
        "DESCRIPTORS": lambda args: (
            _descriptor_fits(args["Q"], (args["stride_qm"], 1), args["stride_qb"], args["stride_qh"])
            and _descriptor_fits(args["K"], (1, args["stride_kn"]), args["stride_kb"], args["stride_kh"])
            and _descriptor_fits(args["V"], (args["stride_vn"], 1), args["stride_vb"], args["stride_vh"])
        ),
    }
)
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
    DESCRIPTORS: tl.constexpr,
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
    if DESCRIPTORS:
        q_desc = tl.make_tensor_descriptor(
            Q + tl.cast(b, tl.int64) * stride_qb + tl.cast(h, tl.int64) * stride_qh,
            shape=[S, D],
            strides=[stride_qm, 1],
            block_shape=[BLOCK_M, D],
        )
        q = q_desc.load([block * BLOCK_M, 0])
    else:
        q = tl.load(q_ptrs) if EVEN else tl.load(q_ptrs, mask=offs_m[:, None] < S, other=0.0)
    m_i = tl.full([BLOCK_M], -float("inf"), tl.float32)
    l_i = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, D], tl.float32)
    scale = sm_scale * 1.4426950408889634  # exp(x) = exp2(x * log2(e))
    if CAUSAL:
        diagonal = (block * BLOCK_M) // BLOCK_N * BLOCK_N  # the key blocks before it lie wholly below the diagonal
        end = tl.minimum((block + 1) * BLOCK_M, S)
        if DESCRIPTORS:
            unbounded: tl.constexpr = 2147483647  # where the load had no mask
            k_all = tl.make_tensor_descriptor(
                K + tl.cast(b, tl.int64) * stride_kb + tl.cast((h // GROUP), tl.int64) * stride_kh,
                shape=[unbounded, D],
                strides=[stride_kn, 1],
                block_shape=[BLOCK_N, D],
            )
            v_all = tl.make_tensor_descriptor(
                V + tl.cast(b, tl.int64) * stride_vb + tl.cast((h // GROUP), tl.int64) * stride_vh,
                shape=[unbounded, D],
                strides=[stride_vn, 1],
                block_shape=[BLOCK_N, D],
            )
            for start in range(0, diagonal, BLOCK_N):
                k = tl.trans(k_all.load([start, 0]))
                qk = tl.dot(q, k)
                m_new = tl.maximum(m_i, tl.max(qk, 1) * scale)
                p = tl.math.exp2(qk * scale - m_new[:, None])
                alpha = tl.math.exp2(m_i - m_new)
                l_i = l_i * alpha + tl.sum(p, 1)
                acc = acc * alpha[:, None]
                v = v_all.load([start, 0])
                acc = tl.dot(p.to(v.dtype), v, acc)
                m_i = m_new
        else:
            for start in range(0, diagonal, BLOCK_N):
                k = tl.load(k_ptrs + start * stride_kn)
                qk = tl.dot(q, k)
                m_new = tl.maximum(m_i, tl.max(qk, 1) * scale)
                p = tl.math.exp2(qk * scale - m_new[:, None])
                alpha = tl.math.exp2(m_i - m_new)
                l_i = l_i * alpha + tl.sum(p, 1)
                acc = acc * alpha[:, None]
                v = tl.load(v_ptrs + start * stride_vn)
                acc = tl.dot(p.to(v.dtype), v, acc)
                m_i = m_new
        if DESCRIPTORS:
            k_desc = tl.make_tensor_descriptor(
                K + tl.cast(b, tl.int64) * stride_kb + tl.cast((h // GROUP), tl.int64) * stride_kh,
                shape=[S, D],
                strides=[stride_kn, 1],
                block_shape=[BLOCK_N, D],
            )
            v_desc = tl.make_tensor_descriptor(
                V + tl.cast(b, tl.int64) * stride_vb + tl.cast((h // GROUP), tl.int64) * stride_vh,
                shape=[S, D],
                strides=[stride_vn, 1],
                block_shape=[BLOCK_N, D],
            )
            for start_1 in range(diagonal, end, BLOCK_N):
                cols_1 = start_1 + offs_n
                k_1 = tl.trans(k_desc.load([start_1, 0]))
                qk_1 = tl.dot(q, k_1)
                qk_1 = tl.where(offs_m[:, None] >= cols_1[None, :], qk_1, -1.0e30)
                if not EVEN:
                    qk_1 = tl.where(cols_1[None, :] < S, qk_1, -1.0e30)
                m_new_1 = tl.maximum(m_i, tl.max(qk_1, 1) * scale)
                p_1 = tl.math.exp2(qk_1 * scale - m_new_1[:, None])
                alpha_1 = tl.math.exp2(m_i - m_new_1)
                l_i = l_i * alpha_1 + tl.sum(p_1, 1)
                acc = acc * alpha_1[:, None]
                v_1 = v_desc.load([start_1, 0])
                acc = tl.dot(p_1.to(v_1.dtype), v_1, acc)
                m_i = m_new_1
        else:
            for start_1 in range(diagonal, end, BLOCK_N):
                cols_1 = start_1 + offs_n
                if EVEN:
                    k_1 = tl.load(k_ptrs + start_1 * stride_kn)
                else:
                    k_1 = tl.load(k_ptrs + start_1 * stride_kn, mask=cols_1[None, :] < S, other=0.0)
                qk_1 = tl.dot(q, k_1)
                qk_1 = tl.where(offs_m[:, None] >= cols_1[None, :], qk_1, -1.0e30)
                if not EVEN:
                    qk_1 = tl.where(cols_1[None, :] < S, qk_1, -1.0e30)
                m_new_1 = tl.maximum(m_i, tl.max(qk_1, 1) * scale)
                p_1 = tl.math.exp2(qk_1 * scale - m_new_1[:, None])
                alpha_1 = tl.math.exp2(m_i - m_new_1)
                l_i = l_i * alpha_1 + tl.sum(p_1, 1)
                acc = acc * alpha_1[:, None]
                if EVEN:
                    v_1 = tl.load(v_ptrs + start_1 * stride_vn)
                else:
                    v_1 = tl.load(v_ptrs + start_1 * stride_vn, mask=cols_1[:, None] < S, other=0.0)
                acc = tl.dot(p_1.to(v_1.dtype), v_1, acc)
                m_i = m_new_1
    else:
        if DESCRIPTORS:
            k_desc_1 = tl.make_tensor_descriptor(
                K + tl.cast(b, tl.int64) * stride_kb + tl.cast((h // GROUP), tl.int64) * stride_kh,
                shape=[S, D],
                strides=[stride_kn, 1],
                block_shape=[BLOCK_N, D],
            )
            v_desc_1 = tl.make_tensor_descriptor(
                V + tl.cast(b, tl.int64) * stride_vb + tl.cast((h // GROUP), tl.int64) * stride_vh,
                shape=[S, D],
                strides=[stride_vn, 1],
                block_shape=[BLOCK_N, D],
            )
            for start_2 in tl.range(0, S, BLOCK_N, warp_specialize=True):
                cols_2 = start_2 + offs_n
                k_2 = tl.trans(k_desc_1.load([start_2, 0]))
                qk_2 = tl.dot(q, k_2)
                if not EVEN:
                    qk_2 = tl.where(cols_2[None, :] < S, qk_2, -1.0e30)
                m_new_2 = tl.maximum(m_i, tl.max(qk_2, 1) * scale)
                p_2 = tl.math.exp2(qk_2 * scale - m_new_2[:, None])
                alpha_2 = tl.math.exp2(m_i - m_new_2)
                l_i = l_i * alpha_2 + tl.sum(p_2, 1)
                acc = acc * alpha_2[:, None]
                v_2 = v_desc_1.load([start_2, 0])
                acc = tl.dot(p_2.to(v_2.dtype), v_2, acc)
                m_i = m_new_2
        else:
            for start_2 in range(0, S, BLOCK_N):
                cols_2 = start_2 + offs_n
                if EVEN:
                    k_2 = tl.load(k_ptrs + start_2 * stride_kn)
                else:
                    k_2 = tl.load(k_ptrs + start_2 * stride_kn, mask=cols_2[None, :] < S, other=0.0)
                qk_2 = tl.dot(q, k_2)
                if not EVEN:
                    qk_2 = tl.where(cols_2[None, :] < S, qk_2, -1.0e30)
                m_new_2 = tl.maximum(m_i, tl.max(qk_2, 1) * scale)
                p_2 = tl.math.exp2(qk_2 * scale - m_new_2[:, None])
                alpha_2 = tl.math.exp2(m_i - m_new_2)
                l_i = l_i * alpha_2 + tl.sum(p_2, 1)
                acc = acc * alpha_2[:, None]
                if EVEN:
                    v_2 = tl.load(v_ptrs + start_2 * stride_vn)
                else:
                    v_2 = tl.load(v_ptrs + start_2 * stride_vn, mask=cols_2[:, None] < S, other=0.0)
                acc = tl.dot(p_2.to(v_2.dtype), v_2, acc)
                m_i = m_new_2
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
    triton.set_allocator(_descriptor_memory)
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
