import torch
from fla.ops.comba import fused_recurrent_comba

torch.manual_seed(0)
B, T, H, D = 4, 256, 32, 128

q = torch.randn(B, T, H, D, device="cuda", dtype=torch.bfloat16)
k = torch.nn.functional.normalize(torch.randn(B, T, H, D, device="cuda"), dim=-1).bfloat16()
p = (k * torch.rand(H, 1, device="cuda")).bfloat16()
v = torch.randn(B, T, H, D, device="cuda", dtype=torch.bfloat16)
g = torch.nn.functional.logsigmoid(torch.randn(B, T, H, device="cuda"))
beta = torch.rand(B, T, H, device="cuda")

with torch.no_grad():
    out, state = fused_recurrent_comba(q, k, p, v, g, beta, output_final_state=True)

expected_state = torch.zeros(B, H, D, D, device="cuda")
rows = []
for t in range(T):
    qt, kt, pt, vt = (x[:, t].float() for x in (q, k, p, v))
    # The kernel, and chunk_comba, subtract what the state holds before it decays; the package's naive.py after.
    new = (vt - torch.einsum("bhk,bhkv->bhv", pt, expected_state)) * beta[:, t, :, None]
    expected_state = expected_state * g[:, t, :, None, None].exp() + kt[..., None] * new[..., None, :]
    rows.append(torch.einsum("bhk,bhkv->bhv", qt * D**-0.5, expected_state))

torch.testing.assert_close(out, torch.stack(rows, dim=1).bfloat16(), rtol=2e-2, atol=5e-2)
torch.testing.assert_close(state.float(), expected_state, rtol=1e-2, atol=1e-2)
