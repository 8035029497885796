import torch
from bitsandbytes.backends.triton.ops import quantize_blockwise
from bitsandbytes.functional import create_dynamic_map

BLOCK = 256


def nearest_codes(blocks, code):
    scaled = blocks / blocks.abs().amax(dim=1, keepdim=True)
    return torch.bucketize(scaled, (code[1:] + code[:-1]) / 2)


def test_quantize_blockwise():
    torch.manual_seed(0)
    code = create_dynamic_map().to("cuda")
    state = torch.randn(4096 * 4096, device="cuda", dtype=torch.float32) * 0.01
    quantized, absmax = quantize_blockwise(state, code, BLOCK)

    blocks = state.view(-1, BLOCK)
    torch.testing.assert_close(absmax, blocks.abs().amax(dim=1), rtol=0.0, atol=0.0)
    actual = code[quantized.view(-1, BLOCK).int()] * absmax[:, None]
    expected = code[nearest_codes(blocks, code)] * absmax[:, None]
    torch.testing.assert_close((actual - blocks).abs(), (expected - blocks).abs(), rtol=1e-3, atol=1e-6)
