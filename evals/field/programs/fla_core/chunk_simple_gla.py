import torch
from fla.ops.simple_gla import chunk_simple_gla

torch.manual_seed(0)
B, T, H, D = 2, 1024, 32, 128

# As in Mamba-2: C, B and x, with a decay for each token and head.
q = torch.randn(B, T, H, D, device="cuda", dtype=torch.bfloat16)
k = torch.randn(B, T, H, D, device="cuda", dtype=torch.bfloat16)
v = torch.randn(B, T, H, D, device="cuda", dtype=torch.bfloat16)
g = torch.nn.functional.logsigmoid(torch.randn(B, T, H, device="cuda"))

with torch.no_grad():
    out, _ = chunk_simple_gla(q, k, v, g)

log_decay = g.cumsum(dim=1).transpose(1, 2)
between = (log_decay[..., :, None] - log_decay[..., None, :]).tril()
scores = torch.einsum("bqhd,bshd->bhqs", q.float(), k.float()) * D**-0.5
expected = torch.einsum("bhqs,bshd->bqhd", (scores * between.exp()).tril(), v.float())
torch.testing.assert_close(out, expected.bfloat16(), rtol=2e-2, atol=6e-2)
