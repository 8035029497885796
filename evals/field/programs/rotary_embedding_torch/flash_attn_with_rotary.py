import torch
from rotary_embedding_torch.flash_attn_with_rotary import flash_attn_with_rotary


def rotate(x, angles):
    pairs = x.float().unflatten(-1, (-1, 2))
    turned = torch.stack((-pairs[..., 1], pairs[..., 0]), dim=-1).flatten(-2)
    return x.float() * angles.cos().half().float() + turned * angles.sin().half().float()


def attention(q, k, v, angles):
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    scores = rotate(q, angles) @ rotate(k, angles).transpose(-1, -2) * q.shape[-1] ** -0.5
    future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return scores.masked_fill(future, float("-inf")).softmax(dim=-1) @ v.float()


def test_flash_attn_with_rotary():
    torch.manual_seed(0)
    batch, heads, kv_heads, length, dim = 1, 32, 8, 1024, 64
    q = torch.randn(batch, heads, length, dim, device="cuda", dtype=torch.float16)
    k = torch.randn(batch, kv_heads, length, dim, device="cuda", dtype=torch.float16)
    v = torch.randn(batch, kv_heads, length, dim, device="cuda", dtype=torch.float16)
    grad = torch.randn_like(q)
    q, k, v = (x.requires_grad_() for x in (q, k, v))
    frequencies = 10000.0 ** (-torch.arange(0, dim, 2, device="cuda") / dim)
    angles = (torch.arange(length, device="cuda")[:, None] * frequencies).repeat_interleave(2, dim=-1)
    cos, sin = (x.half()[None, None] for x in (angles.cos(), angles.sin()))

    out = flash_attn_with_rotary(q, k, v, cos, sin, is_causal=True)
    actual = torch.autograd.grad(out, (q, k, v), grad)
    expected_out = attention(q, k, v, angles)
    expected = torch.autograd.grad(expected_out, (q, k, v), grad.float())
    torch.testing.assert_close(out.float(), expected_out, rtol=2e-2, atol=2e-2)
    for actual_grad, expected_grad in zip(actual, expected, strict=True):
        torch.testing.assert_close(actual_grad, expected_grad, rtol=3e-2, atol=5e-2)
