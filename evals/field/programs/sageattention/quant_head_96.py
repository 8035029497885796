import torch
from sageattention.quant_per_block_hd96 import per_block_int8_hd96

LOG2_E = 1.44269504


def quantize(x, block):
    batch, heads, length, dim = x.shape
    blocks = x.view(batch, heads, length // block, block * dim)
    scale = blocks.abs().amax(dim=-1, keepdim=True) / 127.0
    return (blocks / scale).round().view(x.shape), scale


torch.manual_seed(0)
q = torch.randn(1, 32, 4096, 96, device="cuda", dtype=torch.float16)
k = torch.randn(1, 32, 4096, 96, device="cuda", dtype=torch.float16)
q_int8, q_scale, k_int8, k_scale = per_block_int8_hd96(q, k)

q_expected, q_scale_expected = quantize(q.float() * (96**-0.5 * LOG2_E), 128)
k_expected, k_scale_expected = quantize(k.float(), 64)
torch.testing.assert_close(q_scale, q_scale_expected, rtol=1e-5, atol=1e-7)
torch.testing.assert_close(k_scale, k_scale_expected, rtol=1e-5, atol=1e-7)
torch.testing.assert_close(q_int8.float(), q_expected, rtol=0.0, atol=1.0)
torch.testing.assert_close(k_int8.float(), k_expected, rtol=0.0, atol=1.0)
