import torch
from torch.sparse._triton_ops import bsr_dense_addmm


def test_bsr_dense_addmm():
    torch.manual_seed(0)
    size, block = 4096, 64
    keep = torch.rand(size // block, size // block, device="cuda") < 0.25
    mask = keep.repeat_interleave(block, dim=0).repeat_interleave(block, dim=1)
    weight = torch.randn(size, size, device="cuda", dtype=torch.bfloat16) * 0.02 * mask
    x = torch.randn(size, 2048, device="cuda", dtype=torch.bfloat16)
    bias = torch.randn(size, 2048, device="cuda", dtype=torch.bfloat16)

    actual = bsr_dense_addmm(bias, weight.to_sparse_bsr((block, block)), x)
    expected = bias.float() + weight.float() @ x.float()
    torch.testing.assert_close(actual, expected.bfloat16(), rtol=2e-2, atol=2e-2)
