import torch
from torchao.prototype.quantized_training.int8_mm import scaled_int8_mm

torch.manual_seed(0)
a = torch.randint(-128, 128, (4096, 4096), device="cuda", dtype=torch.int8)
weight = torch.randint(-128, 128, (4096, 4096), device="cuda", dtype=torch.int8)
row_scale = torch.rand(4096, device="cuda", dtype=torch.bfloat16) * 0.01
col_scale = torch.rand(4096, device="cuda", dtype=torch.bfloat16) * 0.01

actual = scaled_int8_mm(a, weight.T, row_scale, col_scale)
expected = (a.float() @ weight.float().T) * row_scale.float()[:, None] * col_scale.float()
torch.testing.assert_close(actual.float(), expected, rtol=1e-2, atol=1e-2)
