import torch
from conch.ops.quantization.fp8 import scaled_fp8_quant

torch.manual_seed(0)
hidden = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
scale = (hidden.float().abs().max() / 448.0).reshape(1)

quantized, _ = scaled_fp8_quant(hidden, scale)

# A step of e4m3 is an eighth of the value.
restored = quantized.float() * scale
torch.testing.assert_close(restored, hidden.float(), rtol=0.0626, atol=float(scale) * 2**-9)
expected = (hidden.float() * (1.0 / scale)).to(torch.float8_e4m3fn)
torch.testing.assert_close(quantized.float(), expected.float(), rtol=0.125, atol=2**-9)
