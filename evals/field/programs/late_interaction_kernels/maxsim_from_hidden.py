import torch
from late_interaction_kernels.fused_head import maxsim_from_hidden


def reference(query, hidden, weight):
    docs = torch.nn.functional.normalize(hidden.float() @ weight.float().T, dim=-1)
    similarity = torch.einsum("qsd,ntd->qnst", query.float(), docs)
    return similarity.amax(dim=-1).sum(dim=-1)


def test_maxsim_from_hidden():
    torch.manual_seed(0)
    query = torch.nn.functional.normalize(torch.randn(8, 32, 128, device="cuda"), dim=-1).bfloat16()
    hidden = torch.randn(64, 512, 4096, device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(128, 4096, device="cuda", dtype=torch.bfloat16) * 0.02
    actual = maxsim_from_hidden(query, hidden, weight)
    torch.testing.assert_close(actual, reference(query, hidden, weight), rtol=1e-2, atol=5e-2)
