import torch
from torchao.kernel.blockwise_quantization import blockwise_fp8_gemm

torch.manual_seed(0)
M, N, K, BLOCK = 4096, 4096, 4096, 128

a = torch.randn(M, K, device="cuda").to(torch.float8_e4m3fn)
b = torch.randn(N, K, device="cuda").to(torch.float8_e4m3fn)
a_scale = torch.rand(M, K // BLOCK, device="cuda") * 0.1
b_scale = torch.rand(N // BLOCK, K // BLOCK, device="cuda") * 0.1

actual = blockwise_fp8_gemm(a, a_scale, b, b_scale, BLOCK)

a_full = a.float() * a_scale.repeat_interleave(BLOCK, dim=1)
b_full = b.float() * b_scale.repeat_interleave(BLOCK, dim=0).repeat_interleave(BLOCK, dim=1)
torch.testing.assert_close(actual, (a_full @ b_full.T).bfloat16(), rtol=2e-2, atol=1e-2)
