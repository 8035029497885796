import torch
from adasplash import adasplash


def entmax15(scores):
    x = (scores - scores.amax(dim=-1, keepdim=True)) / 2
    ordered = x.sort(dim=-1, descending=True).values
    rank = torch.arange(1, x.shape[-1] + 1, device=x.device)
    mean = ordered.cumsum(dim=-1) / rank
    spread = rank * (ordered.square().cumsum(dim=-1) / rank - mean.square())
    tau = mean - ((1 - spread) / rank).clamp(min=0).sqrt()
    support = (tau <= ordered).sum(dim=-1, keepdim=True)
    return (x - tau.gather(dim=-1, index=support - 1)).clamp(min=0).square()


def test_adasplash():
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 16, 1024, 128, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    out = adasplash(q, k, v, alpha=1.5, is_causal=True)
    with torch.no_grad():
        scores = (q.float() @ k.float().transpose(-1, -2)) * 128**-0.5
        future = torch.ones(1024, 1024, dtype=torch.bool, device="cuda").triu(1)
        expected = entmax15(scores.masked_fill(future, -1e3)) @ v.float()
    torch.testing.assert_close(out.float(), expected, rtol=3e-2, atol=4e-2)

    out.backward(torch.randn_like(out))
    for x in (q, k, v):
        assert x.grad.isfinite().all()
