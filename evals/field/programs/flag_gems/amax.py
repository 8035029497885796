import flag_gems
import torch


def test_amax():
    torch.manual_seed(0)
    logits = torch.randn(4096, 32000, device="cuda", dtype=torch.bfloat16)
    actual = flag_gems.amax(logits, dim=[-1], keepdim=True)
    torch.testing.assert_close(actual, logits.max(dim=-1, keepdim=True).values, rtol=0.0, atol=0.0)
