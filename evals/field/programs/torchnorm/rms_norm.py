import torch
from torchnorm import RMSNorm

torch.manual_seed(0)
norm = RMSNorm(4096, eps=1e-6).to("cuda", torch.bfloat16)
torch.nn.init.normal_(norm.weight)
x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16, requires_grad=True)
grad = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)

out = norm(x)
actual = torch.autograd.grad(out, (x, norm.weight), grad)

x32 = x.float()
expected_out = x32 * torch.rsqrt(x32.square().mean(dim=-1, keepdim=True) + 1e-6) * norm.weight.float()
expected = torch.autograd.grad(expected_out, (x, norm.weight), grad.float())
torch.testing.assert_close(out.float(), expected_out, rtol=2e-2, atol=2e-2)
torch.testing.assert_close(actual[0], expected[0], rtol=2e-2, atol=3e-2)
torch.testing.assert_close(actual[1], expected[1], rtol=2e-2, atol=1.0)
