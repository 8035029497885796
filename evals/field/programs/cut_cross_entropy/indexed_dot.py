import torch
from cut_cross_entropy.indexed_dot import indexed_neg_dot_forward_kernel

torch.manual_seed(0)
hidden = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
classifier = torch.randn(32000, 4096, device="cuda", dtype=torch.bfloat16)
targets = torch.randint(0, 32000, (4096,), device="cuda")

actual = indexed_neg_dot_forward_kernel(hidden, classifier, targets, out_dtype=torch.float32)
expected = -(hidden.float() * classifier[targets].float()).sum(dim=-1)
# Products of bfloat16 are rounded to bfloat16 before they are summed, of 4096 terms about 1 large.
torch.testing.assert_close(actual, expected, rtol=1e-2, atol=0.5)
