import torch
from liger_kernel.ops.rope import LigerRopeFunction


def rotate(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def test_rope():
    torch.manual_seed(0)
    batch, length, heads, kv_heads, dim = 1, 4096, 32, 8, 128
    q = torch.randn(batch, length, heads, dim, device="cuda", dtype=torch.bfloat16).transpose(1, 2)
    k = torch.randn(batch, length, kv_heads, dim, device="cuda", dtype=torch.bfloat16).transpose(1, 2)
    frequencies = 10000.0 ** (-torch.arange(0, dim, 2, device="cuda") / dim)
    angles = torch.arange(length, device="cuda")[:, None] * frequencies
    cos = torch.cat((angles, angles), dim=-1).cos()[None].bfloat16()
    sin = torch.cat((angles, angles), dim=-1).sin()[None].bfloat16()
    expected = [rotate(x.float(), cos.float(), sin.float()).bfloat16() for x in (q, k)]
    grads = [torch.randn_like(x) for x in (q, k)]
    expected_grads = [rotate(x.float(), cos.float(), -sin.float()).bfloat16() for x in grads]

    # The kernel writes over its inputs, as a model lets it do with the outputs of its projections.
    leaves = [x.clone().requires_grad_() for x in (q, k)]
    actual = LigerRopeFunction.apply(*(x * 1.0 for x in leaves), cos, sin)
    torch.autograd.backward(actual, grads)
    for got, want in zip(actual, expected, strict=True):
        torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)
    for leaf, want in zip(leaves, expected_grads, strict=True):
        torch.testing.assert_close(leaf.grad, want, rtol=2e-2, atol=2e-2)
