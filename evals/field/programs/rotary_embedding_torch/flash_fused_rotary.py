import torch
from rotary_embedding_torch.flash_fused_rotary import flash_attention_fused

torch.manual_seed(0)
B, H, T, D = 1, 32, 1024, 64

q = torch.randn(B, H, T, D, device="cuda", dtype=torch.float16, requires_grad=True)
k = torch.randn(B, H, T, D, device="cuda", dtype=torch.float16, requires_grad=True)
v = torch.randn(B, H, T, D, device="cuda", dtype=torch.float16, requires_grad=True)
grad = torch.randn(B, H, T, D, device="cuda", dtype=torch.float16)
frequencies = 10000.0 ** (-torch.arange(0, D, 2, device="cuda") / D)
angles = (torch.arange(T, device="cuda")[:, None] * frequencies).repeat_interleave(2, dim=-1)
cos, sin = (x.half()[None, None] for x in (angles.cos(), angles.sin()))


def rotate(x):
    pairs = x.float().unflatten(-1, (-1, 2))
    turned = torch.stack((-pairs[..., 1], pairs[..., 0]), dim=-1).flatten(-2)
    return x.float() * cos.float() + turned * sin.float()


out = flash_attention_fused(q, k, v, cos, sin, is_causal=True)
actual = torch.autograd.grad(out, (q, k, v), grad)

scores = rotate(q) @ rotate(k).transpose(-1, -2) * D**-0.5
future = torch.ones(T, T, dtype=torch.bool, device="cuda").triu(1)
expected_out = scores.masked_fill(future, float("-inf")).softmax(dim=-1) @ v.float()
expected = torch.autograd.grad(expected_out, (q, k, v), grad.float())
torch.testing.assert_close(out.float(), expected_out, rtol=2e-2, atol=2e-2)
for actual_grad, expected_grad in zip(actual, expected, strict=True):
    torch.testing.assert_close(actual_grad, expected_grad, rtol=3e-2, atol=5e-2)
