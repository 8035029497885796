import torch
from grouped_mm_bf16 import grouped_mm

torch.manual_seed(0)
ROWS = [704, 320, 512, 896, 64, 1024, 256, 320]
INPUTS, OUTPUTS = 4096, 1408

tokens = torch.randn(sum(ROWS), INPUTS, device="cuda", dtype=torch.bfloat16, requires_grad=True)
experts = (torch.randn(len(ROWS), OUTPUTS, INPUTS, device="cuda", dtype=torch.bfloat16) * 0.02).requires_grad_()
ends = torch.tensor(ROWS, device="cuda").cumsum(0).int()
grad = torch.randn(sum(ROWS), OUTPUTS, device="cuda", dtype=torch.bfloat16)

out = grouped_mm(tokens, experts.transpose(-2, -1), offs=ends)
actual = torch.autograd.grad(out, (tokens, experts), grad)

groups = zip(tokens.split(ROWS), experts.unbind(), strict=True)
expected_out = torch.cat([rows @ weight.T for rows, weight in groups])
expected = torch.autograd.grad(expected_out, (tokens, experts), grad)

torch.testing.assert_close(out, expected_out, rtol=2e-2, atol=2e-2)
torch.testing.assert_close(actual[0], expected[0], rtol=2e-2, atol=2e-2)
torch.testing.assert_close(actual[1], expected[1], rtol=2e-2, atol=2.5e-1)
