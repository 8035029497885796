import torch
from fla.ops.generalized_delta_rule.dplr import chunk_dplr_delta_rule

B, T, H, D = 1, 256, 16, 64


def reference(q, k, v, a, b, gk):
    state = torch.zeros(B, H, D, D, device=q.device)
    rows = []
    for t in range(T):
        qt, kt, vt, at, bt = (x[:, t].float() for x in (q, k, v, a, b))
        read = torch.einsum("bhk,bhkv->bhv", at, state)
        new = bt[..., None] * read[..., None, :] + kt[..., None] * vt[..., None, :]
        state = state * gk[:, t, ..., None].exp() + new
        rows.append(torch.einsum("bhk,bhkv->bhv", qt * D**-0.5, state))
    return torch.stack(rows, dim=1)


def test_chunk_dplr_delta_rule():
    torch.manual_seed(0)
    q, k, v, direction = (torch.randn(B, T, H, D, device="cuda") for _ in range(4))
    direction = torch.nn.functional.normalize(direction, dim=-1)
    a, b = -direction, direction * torch.rand(B, T, H, D, device="cuda")
    gk = -0.6 * torch.rand(B, T, H, D, device="cuda")
    q, k, v, a, b = (x.bfloat16().requires_grad_() for x in (q, k, v, a, b))
    grad = torch.randn(B, T, H, D, device="cuda", dtype=torch.bfloat16)

    out, _ = chunk_dplr_delta_rule(q, k, v, a, b, gk)
    actual = torch.autograd.grad(out, (q, k, v), grad)
    expected_out = reference(q, k, v, a, b, gk)
    expected = torch.autograd.grad(expected_out, (q, k, v), grad.float())

    torch.testing.assert_close(out.float(), expected_out, rtol=5e-2, atol=1e-1)
    for actual_grad, expected_grad in zip(actual, expected, strict=True):
        torch.testing.assert_close(actual_grad, expected_grad, rtol=5e-2, atol=1.5e-1)
