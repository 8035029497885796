import torch
from xformers.ops import scaled_index_add

torch.manual_seed(0)
residual = torch.randn(16, 1024, 4096, device="cuda", dtype=torch.bfloat16)
index = torch.tensor([14, 3, 7, 0, 9, 12, 1, 5], device="cuda")
source = torch.randn(8, 1024, 4096, device="cuda", dtype=torch.bfloat16, requires_grad=True)
scaling = torch.randn(4096, device="cuda", dtype=torch.bfloat16, requires_grad=True)
grad = torch.randn(16, 1024, 4096, device="cuda", dtype=torch.bfloat16)

expected_out = residual.float().index_add(0, index, source.float() * scaling.float(), alpha=2.0)
expected = torch.autograd.grad(expected_out, (source, scaling), grad.float())

out = scaled_index_add(residual, index, source, scaling, alpha=2.0)
actual = torch.autograd.grad(out, (source, scaling), grad)

torch.testing.assert_close(out.float(), expected_out, rtol=1e-2, atol=3e-2)
torch.testing.assert_close(actual[0], expected[0], rtol=1e-2, atol=3e-2)
# The gradient of the scaling is rounded to bfloat16 before it is summed over 8192 rows.
torch.testing.assert_close(actual[1], expected[1], rtol=5e-2, atol=5.0)
