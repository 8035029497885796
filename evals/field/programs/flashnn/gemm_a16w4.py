import torch
from flashnn.triton_kernels.gemm_a16w4 import triton_gemm_a16w4_forward

torch.manual_seed(0)
tokens, inputs, outputs = 64, 4096, 4096

act = torch.randn(tokens, inputs, device="cuda", dtype=torch.float16)
packed = torch.randint(-128, 128, (outputs // 2, inputs), device="cuda", dtype=torch.int8)
scale = torch.rand(outputs, device="cuda", dtype=torch.float16) * 0.005
bias = torch.randn(outputs, device="cuda", dtype=torch.float16)
out = torch.empty(tokens, outputs, device="cuda", dtype=torch.float16)

triton_gemm_a16w4_forward(out, act, packed, scale, bias=bias)

# A byte holds two rows of the weight, the even one in its low half.
byte = packed.int()
low, high = (byte & 15), (byte >> 4)
low = torch.where(low > 7, low - 16, low)
weight = torch.stack((low, high), dim=1).view(outputs, inputs).float() * scale.float()[:, None]
expected = act.float() @ weight.T + bias.float()
torch.testing.assert_close(out, expected.half(), rtol=1e-2, atol=2e-2)
