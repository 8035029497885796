import torch
from torch._native.ops.bmm_outer_product.triton_kernels import bmm_outer_product

torch.manual_seed(0)
a = torch.randn(64, 2048, 1, device="cuda", dtype=torch.bfloat16)
b = torch.randn(64, 1, 2048, device="cuda", dtype=torch.bfloat16)
torch.testing.assert_close(bmm_outer_product(a, b), a * b, rtol=1e-2, atol=1e-3)
