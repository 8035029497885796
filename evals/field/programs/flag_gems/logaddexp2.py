import torch
from flag_gems.experimental_ops.logaddexp2 import logaddexp2

torch.manual_seed(0)
x = torch.randn(4096, 4096, device="cuda", dtype=torch.float16) * 4
y = torch.randn(4096, 4096, device="cuda", dtype=torch.float16) * 4

actual = logaddexp2(x, y)
expected = torch.log2(torch.exp2(x.float()) + torch.exp2(y.float())).half()
torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-3)
