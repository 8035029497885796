import torch
from flash_attention_triton import flash_attention_v2


def attention(q, k, v):
    scores = (q.float() @ k.float().transpose(-1, -2)) * q.shape[-1] ** -0.5
    future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return scores.masked_fill(future, float("-inf")).softmax(dim=-1) @ v.float()


def test_flash_attention_v2():
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 16, 2048, 128, device="cuda", dtype=torch.float16, requires_grad=True) for _ in range(3))
    grad = torch.randn(1, 16, 2048, 128, device="cuda", dtype=torch.float16)

    out = flash_attention_v2(q, k, v)
    actual = torch.autograd.grad(out, (q, k, v), grad)
    expected_out = attention(q, k, v)
    expected = torch.autograd.grad(expected_out, (q, k, v), grad.float())

    torch.testing.assert_close(out.float(), expected_out, rtol=1e-2, atol=1e-2)
    for actual_grad, expected_grad in zip(actual, expected, strict=True):
        torch.testing.assert_close(actual_grad, expected_grad, rtol=2e-2, atol=2e-2)
