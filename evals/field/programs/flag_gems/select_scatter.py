import flag_gems
import torch

torch.manual_seed(0)
cache = torch.randn(8, 1024, 4096, device="cuda", dtype=torch.float16)
token = torch.randn(8, 4096, device="cuda", dtype=torch.float16)

actual = flag_gems.select_scatter(cache, token, 1, 17)
expected = cache.clone()
expected[:, 17] = token
torch.testing.assert_close(actual, expected, rtol=0.0, atol=0.0)
