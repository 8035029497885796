import torch
from sageattention import sageattn

torch.manual_seed(0)
q = torch.randn(1, 32, 2048, 128, device="cuda", dtype=torch.float16)
k = torch.randn(1, 32, 2048, 128, device="cuda", dtype=torch.float16)
v = torch.randn(1, 32, 2048, 128, device="cuda", dtype=torch.float16)

scores = (q.float() @ k.float().transpose(-1, -2)) * 128**-0.5
expected = (scores.softmax(dim=-1) @ v.float()).half()

actual = sageattn(q, k, v, tensor_layout="HND", is_causal=False)
torch.testing.assert_close(actual, expected, rtol=5e-2, atol=4e-3)
