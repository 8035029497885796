import torch
from torchao.prototype.hqq import pack_2xint4, triton_mixed_mm


def test_mixed_mm():
    torch.manual_seed(0)
    tokens, inputs, outputs, group = 512, 4096, 4096, 128
    x = torch.randn(tokens, inputs, device="cuda", dtype=torch.float16)
    weight = torch.randint(0, 16, (inputs, outputs), device="cuda", dtype=torch.uint8)
    # Stored by output, as HQQ does: the kernel counts on groups that are next to each other.
    scales = (torch.rand(outputs, inputs // group, device="cuda", dtype=torch.float16) * 0.01).T
    zeros = torch.randint(0, 16, (outputs, inputs // group), device="cuda").half().T

    actual = triton_mixed_mm(x, pack_2xint4(weight), scales, zeros, group)

    full = (weight.view(-1, group, outputs).half() - zeros[:, None]) * scales[:, None]
    expected = x.float() @ full.view(inputs, outputs).float()
    torch.testing.assert_close(actual, expected.half(), rtol=1e-2, atol=2e-2)
