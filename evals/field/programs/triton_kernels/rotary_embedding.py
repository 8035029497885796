import torch
from triton_kernels.rotary_embedding import rotary_embedding_kernel

torch.manual_seed(0)
TOKENS, HEADS, KV_HEADS, DIM = 4096, 32, 8, 128

query = torch.randn(TOKENS, HEADS, DIM, device="cuda", dtype=torch.float16)
key = torch.randn(TOKENS, KV_HEADS, DIM, device="cuda", dtype=torch.float16)
positions = torch.randperm(TOKENS, device="cuda")
frequencies = 10000.0 ** (-torch.arange(0, DIM, 2, device="cuda") / DIM)
angles = torch.arange(TOKENS, device="cuda")[:, None] * frequencies
cache = torch.cat((angles.cos(), angles.sin()), dim=-1).half()


def rotate(x):
    cos, sin = cache.float()[positions, None].chunk(2, dim=-1)
    first, second = x.float().chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).half()


expected_query, expected_key = rotate(query), rotate(key)
rotary_embedding_kernel[(TOKENS,)](
    positions, query, key, cache, query.stride(0), key.stride(0), query.stride(1), HEADS, KV_HEADS, DIM, DIM,
    IS_NEOX=True, DO_KEY_ROPE=True, BLOCK_SIZE_ROT=256,
)  # fmt: skip
torch.testing.assert_close(query, expected_query, rtol=5e-3, atol=5e-3)
torch.testing.assert_close(key, expected_key, rtol=5e-3, atol=5e-3)
