import torch
from fla.ops.rebased import parallel_rebased

torch.manual_seed(0)
B, T, H, K, V = 1, 1024, 32, 16, 128

q = torch.randn(B, T, H, K, device="cuda", dtype=torch.bfloat16, requires_grad=True)
k = torch.randn(B, T, H, K, device="cuda", dtype=torch.bfloat16, requires_grad=True)
v = torch.randn(B, T, H, V, device="cuda", dtype=torch.bfloat16, requires_grad=True)
grad = torch.randn(B, T, H, V, device="cuda", dtype=torch.bfloat16) * 0.01

out = parallel_rebased(q, k, v, use_normalize=False)
actual = torch.autograd.grad(out, (q, k, v), grad)

scores = torch.einsum("bqhk,bshk->bhqs", q.float(), k.float()) * K**-0.5
expected_out = torch.einsum("bhqs,bshv->bqhv", scores.square().tril(), v.float())
expected = torch.autograd.grad(expected_out, (q, k, v), grad.float())

torch.testing.assert_close(out.float(), expected_out, rtol=2e-2, atol=1.5)
for actual_grad, expected_grad in zip(actual, expected, strict=True):
    torch.testing.assert_close(actual_grad, expected_grad, rtol=2e-2, atol=1e-1)
