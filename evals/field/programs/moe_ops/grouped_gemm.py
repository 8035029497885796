import torch
from moe_ops import grouped_gemm


def test_grouped_gemm():
    torch.manual_seed(0)
    rows, inputs, outputs = [700, 300, 500, 900, 50, 1000, 246, 400], 4096, 2048
    tokens = torch.randn(sum(rows), inputs, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    experts = torch.randn(len(rows), outputs, inputs, device="cuda", dtype=torch.bfloat16) * 0.02
    ends = torch.tensor(rows, device="cuda").cumsum(0).int()
    grad = torch.randn(sum(rows), outputs, device="cuda", dtype=torch.bfloat16)

    out = grouped_gemm(tokens, experts, ends)
    actual = torch.autograd.grad(out, tokens, grad)
    groups = zip(tokens.split(rows), experts.unbind(), strict=True)
    expected_out = torch.cat([part @ weight.T for part, weight in groups])
    expected = torch.autograd.grad(expected_out, tokens, grad)

    torch.testing.assert_close(out, expected_out, rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(actual[0], expected[0], rtol=2e-2, atol=2e-2)
