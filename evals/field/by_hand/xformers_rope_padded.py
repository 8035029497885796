from xformers.ops.fmha.attn_bias import (
    BlockDiagonalCausalWithOffsetPaddedKeysMask,
    _PaddedSeqLenInfo,
    _SeqLenInfo,
)


# The mask is an object that holds tensors, so these are the arguments, and it is made of them here.
def kernel(xq, xk, xv, cache_k, cache_v, q_starts, k_starts, k_lengths, new, total):
    starts = [sum(new[:i]) for i in range(len(new) + 1)]
    padding = cache_k.shape[1] // len(new)
    queries = _SeqLenInfo(q_starts, max(new), min(new), starts)
    keys = [i * padding for i in range(len(new) + 1)]
    bias = BlockDiagonalCausalWithOffsetPaddedKeysMask(
        queries, _PaddedSeqLenInfo(k_starts, max(total), min(total), keys, k_lengths, total, padding)
    )
    return rope_padded(xq, xk, xv, cache_k, cache_v, bias), cache_k, cache_v


def reference(xq, xk, xv, cache_k, cache_v, q_starts, k_starts, k_lengths, new, total):
    order = torch.arange(xq.shape[1], device=xq.device)
    row = torch.bucketize(order, q_starts[1:], right=True)
    positions = k_lengths[row] - q_starts[row + 1] + order
    angles = positions[:, None] * 10000.0 ** (-torch.arange(0, xq.shape[-1], 2, device=xq.device) / xq.shape[-1])

    def rotate(x):
        first, second = x.unflatten(-1, (-1, 2)).unbind(dim=-1)
        cos, sin = angles.cos()[:, None], angles.sin()[:, None]
        return torch.stack((first * cos - second * sin, second * cos + first * sin), -1).flatten(-2).to(x.dtype)

    cache_k[:, k_starts[row] + positions], cache_v[:, k_starts[row] + positions] = rotate(xk), xv
    return rotate(xq), cache_k, cache_v


# The lengths of the program, in units of which 128 make N, and 28 and one token q_len.
def inputs(case, generator):
    def normal(*shape):
        return torch.randn(shape, generator=generator, device=generator.device).to(getattr(torch, case["dtype"]))

    unit, heads, kv_heads, dim = case["N"] // 128, case["n_groups"], case["M"], case["n_q_heads"]
    new, total = [8 * unit, 4 * unit, 16 * unit, 1], [16 * unit, 32 * unit, 16 * unit, 11 * unit]
    starts = [sum(new[:i]) for i in range(5)]
    return {
        "xq": normal(1, starts[-1], heads, dim),
        "xk": normal(1, starts[-1], kv_heads, dim),
        "xv": normal(1, starts[-1], kv_heads, dim),
        "cache_k": normal(1, case["N"], kv_heads, dim),
        "cache_v": normal(1, case["N"], kv_heads, dim),
        "q_starts": torch.tensor(starts, dtype=torch.int32, device=generator.device),
        "k_starts": torch.arange(5, dtype=torch.int32, device=generator.device) * 32 * unit,
        "k_lengths": torch.tensor(total, dtype=torch.int32, device=generator.device),
        "new": new,
        "total": total,
    }


SMALL = {
    "even": dict(bsz=1, q_len=29, n_groups=4, n_q_heads=64, M=2, N=128, dtype="bfloat16"),
    "odd heads": dict(bsz=1, q_len=85, n_groups=3, n_q_heads=40, M=1, N=384, dtype="bfloat16"),
}
HELD_OUT = {"odd": dict(bsz=1, q_len=1093, n_groups=21, n_q_heads=96, M=7, N=4992, dtype="bfloat16")}
