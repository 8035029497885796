import torch
from bitsandbytes.backends.triton.ops import quantize_4bit

torch.manual_seed(0)
BLOCK = 64
NF4 = [-1.0, -0.6961928, -0.52507305, -0.39491748, -0.28444138, -0.18477343, -0.09105004, 0.0]
NF4 += [0.0795803, 0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0]
code = torch.tensor(NF4, device="cuda")

weight = torch.randn(4096, 4096, device="cuda", dtype=torch.float16) * 0.02
packed, absmax = quantize_4bit(weight, BLOCK, "nf4", torch.uint8)

blocks = weight.float().view(-1, BLOCK)
torch.testing.assert_close(absmax, blocks.abs().amax(dim=1), rtol=0.0, atol=0.0)

packed = packed.view(-1, BLOCK // 2).int()
codes = torch.stack((packed >> 4, packed & 15), dim=-1).view(-1, BLOCK)
error = (code[codes] * absmax[:, None] - blocks).abs()

# Where a weight lies half way between two codes either is right, so compare how far off they are.
nearest = torch.bucketize(blocks / absmax[:, None], (code[1:] + code[:-1]) / 2)
best = (code[nearest] * absmax[:, None] - blocks).abs()
torch.testing.assert_close(error, best, rtol=1e-3, atol=1e-5)
