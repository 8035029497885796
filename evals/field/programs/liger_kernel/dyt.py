import torch
from liger_kernel.ops.dyt import LigerDyTFunction

torch.manual_seed(0)
x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16, requires_grad=True)
alpha = torch.full((1,), 0.5, device="cuda", requires_grad=True)
gamma = torch.randn(4096, device="cuda", requires_grad=True)
beta = torch.randn(4096, device="cuda", requires_grad=True)
grad = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)

out = LigerDyTFunction.apply(x, alpha, gamma, beta)
out.backward(grad)
actual = x.grad, gamma.grad, beta.grad

x.grad = gamma.grad = beta.grad = None
expected = torch.tanh(alpha * x.float()) * gamma + beta
expected.backward(grad.float())
torch.testing.assert_close(out.float(), expected, rtol=1e-2, atol=2e-2)
torch.testing.assert_close(actual[0], x.grad, rtol=2e-2, atol=2e-2)
torch.testing.assert_close(actual[1], gamma.grad, rtol=1e-2, atol=5e-1)
torch.testing.assert_close(actual[2].float(), beta.grad, rtol=1e-2, atol=1.0)
