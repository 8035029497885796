import torch
from fla.modules.norm.layernorm import layer_norm


def test_layer_norm():
    torch.manual_seed(0)
    x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    weight = torch.randn(4096, device="cuda", dtype=torch.float32, requires_grad=True)
    bias = torch.randn(4096, device="cuda", dtype=torch.float32, requires_grad=True)
    grad = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)

    out = layer_norm(x, weight, bias, eps=1e-5)
    actual = torch.autograd.grad(out, (x, weight, bias), grad)

    x32 = x.float()
    centred = x32 - x32.mean(dim=-1, keepdim=True)
    expected_out = centred * torch.rsqrt(centred.square().mean(dim=-1, keepdim=True) + 1e-5) * weight + bias
    expected = torch.autograd.grad(expected_out, (x, weight, bias), grad.float())

    torch.testing.assert_close(out.float(), expected_out, rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(actual[0], expected[0], rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(actual[1], expected[1], rtol=1e-2, atol=5e-1)
    torch.testing.assert_close(actual[2], expected[2], rtol=1e-2, atol=5e-1)
