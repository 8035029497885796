import torch
from xformers.ops import rope_padded
from xformers.ops.fmha.attn_bias import BlockDiagonalCausalWithOffsetPaddedKeysMask

torch.manual_seed(0)
HEADS, KV_HEADS, DIM, PADDING = 32, 8, 128, 2048
NEW, TOTAL = [512, 256, 1024, 1], [1024, 2048, 1024, 700]

q = torch.randn(1, sum(NEW), HEADS, DIM, device="cuda", dtype=torch.bfloat16)
k = torch.randn(1, sum(NEW), KV_HEADS, DIM, device="cuda", dtype=torch.bfloat16)
v = torch.randn(1, sum(NEW), KV_HEADS, DIM, device="cuda", dtype=torch.bfloat16)
cache_k = torch.randn(1, len(NEW) * PADDING, KV_HEADS, DIM, device="cuda", dtype=torch.bfloat16)
cache_v = torch.randn_like(cache_k)

positions = torch.cat([torch.arange(total - new, total) for new, total in zip(NEW, TOTAL, strict=True)]).to("cuda")
rows = torch.arange(len(NEW)).repeat_interleave(torch.tensor(NEW)).to("cuda") * PADDING + positions
angles = positions[:, None] * 10000.0 ** (-torch.arange(0, DIM, 2, device="cuda") / DIM)


def rotate(x):
    first, second = x.float().unflatten(-1, (-1, 2)).unbind(dim=-1)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    return torch.stack((first * cos - second * sin, second * cos + first * sin), dim=-1).flatten(-2).bfloat16()


expected_k, expected_v = cache_k.clone(), cache_v.clone()
expected_k[:, rows], expected_v[:, rows] = rotate(k), v

bias = BlockDiagonalCausalWithOffsetPaddedKeysMask.from_seqlens(NEW, PADDING, TOTAL, device="cuda")
out = rope_padded(q, k, v, cache_k, cache_v, bias)
torch.testing.assert_close(out, rotate(q), rtol=2e-2, atol=2e-2)
torch.testing.assert_close(cache_k, expected_k, rtol=2e-2, atol=2e-2)
torch.testing.assert_close(cache_v, expected_v, rtol=0.0, atol=0.0)
