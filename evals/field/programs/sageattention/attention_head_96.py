import torch
from sageattention import sageattn


def attention(q, k, v):
    scores = torch.einsum("bqhd,bkhd->bhqk", q.float(), k.float()) * q.shape[-1] ** -0.5
    return torch.einsum("bhqk,bkhd->bqhd", scores.softmax(dim=-1), v.float())


def test_head_dim_96():
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2048, 32, 96, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    expected = attention(q, k, v).bfloat16()
    actual = sageattn(q, k, v, tensor_layout="NHD", is_causal=False)
    torch.testing.assert_close(actual, expected, rtol=5e-2, atol=4e-3)
