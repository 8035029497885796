import torch
from accelerated_scan.scalar import scan

torch.manual_seed(0)
B, C, T = 2, 4096, 1024

forget = torch.rand(B, C, T, device="cuda", requires_grad=True)
inputs = torch.randn(B, C, T, device="cuda", requires_grad=True)
grad = torch.randn(B, C, T, device="cuda")

states = scan(forget, inputs)
actual = torch.autograd.grad(states, (forget, inputs), grad)

state, rows = torch.zeros(B, C, device="cuda"), []
for f, x in zip(forget.unbind(dim=-1), inputs.unbind(dim=-1), strict=True):
    state = f * state + x
    rows.append(state)
expected_states = torch.stack(rows, dim=-1)
expected = torch.autograd.grad(expected_states, (forget, inputs), grad)

torch.testing.assert_close(states, expected_states, rtol=1e-4, atol=1e-4)
torch.testing.assert_close(actual[0], expected[0], rtol=1e-3, atol=1e-3)
torch.testing.assert_close(actual[1], expected[1], rtol=1e-4, atol=1e-4)
