import torch
from lightning_attn.ops.triton import lightning_attn2_no_decay

torch.manual_seed(0)
B, H, T, D = 1, 32, 1024, 128

q = (torch.randn(B, H, T, D, device="cuda") * D**-0.5).bfloat16().requires_grad_()
k = torch.randn(B, H, T, D, device="cuda", dtype=torch.bfloat16, requires_grad=True)
v = (torch.randn(B, H, T, D, device="cuda") * 0.1).bfloat16().requires_grad_()
grad = torch.randn(B, H, T, D, device="cuda", dtype=torch.bfloat16) * 0.1

out = lightning_attn2_no_decay(q, k, v)
actual = torch.autograd.grad(out, (q, k, v), grad)

expected_out = (q.float() @ k.float().transpose(-1, -2)).tril() @ v.float()
expected = torch.autograd.grad(expected_out, (q, k, v), grad.float())

torch.testing.assert_close(out.float(), expected_out, rtol=2e-2, atol=1e-1)
for actual_grad, expected_grad in zip(actual, expected, strict=True):
    torch.testing.assert_close(actual_grad, expected_grad, rtol=2e-2, atol=1e-1)
