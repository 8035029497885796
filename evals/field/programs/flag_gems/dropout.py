import flag_gems
import torch


def test_dropout():
    torch.manual_seed(0)
    x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    out, mask = flag_gems.dropout(x, 0.1, True)

    expected = torch.where(mask, x.float() / 0.9, 0.0).to(x.dtype)
    torch.testing.assert_close(out, expected, rtol=1e-2, atol=1e-3)
    torch.testing.assert_close(mask.float().mean(), torch.tensor(0.9, device="cuda"), rtol=0.0, atol=2e-3)
