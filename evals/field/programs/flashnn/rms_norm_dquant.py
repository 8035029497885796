import torch
from flashnn.triton_kernels.rms_norm_dquant import triton_rmsnorm_dquant_forward

torch.manual_seed(0)
x = torch.randn(4096, 4096, device="cuda", dtype=torch.float16)
weight = torch.rand(4096, device="cuda", dtype=torch.float16) + 0.5

quantized, scale = triton_rmsnorm_dquant_forward(x, weight, 1e-6)

x32 = x.float()
norm = x32 * torch.rsqrt(x32.square().mean(dim=-1, keepdim=True) + 1e-6) * weight.float()
expected_scale = norm.abs().amax(dim=-1) / 127.0
expected = (norm / expected_scale[:, None]).round()
torch.testing.assert_close(scale.float(), expected_scale, rtol=2e-3, atol=1e-5)
torch.testing.assert_close(quantized.float(), expected, rtol=0.0, atol=1.0)
