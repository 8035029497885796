import torch
from torchao.prototype.attention.quantization.triton_hadamard_rope_qkv_quantization import (
    triton_fp8_hadamard_rope_sdpa_quantize,
)

torch.manual_seed(0)
B, T, H, D = 1, 4096, 32, 128

q = torch.randn(B, T, H, D, device="cuda", dtype=torch.bfloat16)
k = torch.randn(B, T, H, D, device="cuda", dtype=torch.bfloat16)
v = torch.randn(B, T, H, D, device="cuda", dtype=torch.bfloat16)
frequencies = 10000.0 ** (-torch.arange(0, D, 2, device="cuda") / D)
angles = (torch.arange(T, device="cuda")[:, None] * frequencies).repeat(1, 2)
cos, sin = angles.cos(), angles.sin()

quantized = triton_fp8_hadamard_rope_sdpa_quantize(q, k, v, cos, sin)


def rope(x):
    first, second = x.float().chunk(2, dim=-1)
    return x.float() * cos[:, None] + torch.cat((-second, first), dim=-1) * sin[:, None]


hadamard = torch.ones(1, 1, device="cuda")
while hadamard.shape[0] < D:
    hadamard = torch.cat((torch.cat((hadamard, hadamard), 1), torch.cat((hadamard, -hadamard), 1)), 0)

for values, descale, x in zip(quantized[:3], quantized[3:], (rope(q), rope(k), v.float()), strict=True):
    expected = (x @ hadamard * D**-0.5).transpose(1, 2)
    torch.testing.assert_close(descale, expected.abs().amax(dim=(2, 3)) / 448.0, rtol=1e-2, atol=1e-4)
    # A step of e4m3 is an eighth of the value.
    torch.testing.assert_close(values.float() * descale[..., None, None], expected, rtol=0.08, atol=2e-2)
