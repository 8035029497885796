import torch
from conch.ops.attention.varlen_attention import varlen_attention

HEADS, KV_HEADS, DIM, PAGE = 32, 8, 128, 16
LENGTHS = [2048, 1024, 768, 256]


def reference(q, k, v):
    k, v = (x.repeat_interleave(HEADS // KV_HEADS, dim=1) for x in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q.float(), k.float()) * DIM**-0.5
    future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return torch.einsum("hqk,khd->qhd", scores.masked_fill(future, float("-inf")).softmax(-1), v.float())


def test_prefill():
    torch.manual_seed(0)
    pages = [length // PAGE for length in LENGTHS]
    total = sum(LENGTHS)
    query = torch.randn(total, HEADS, DIM, device="cuda", dtype=torch.float16)
    key_cache = torch.randn(sum(pages), PAGE, KV_HEADS, DIM, device="cuda", dtype=torch.float16)
    value_cache = torch.randn_like(key_cache)
    order = torch.randperm(sum(pages), device="cuda").int()
    table = torch.zeros(len(LENGTHS), max(pages), device="cuda", dtype=torch.int32)
    for row, chunk in enumerate(order.split(pages)):
        table[row, : pages[row]] = chunk
    seq_lens = torch.tensor(LENGTHS, device="cuda", dtype=torch.int32)
    starts = torch.nn.functional.pad(seq_lens.cumsum(0), (1, 0)).int()

    out = varlen_attention(
        query, key_cache, value_cache, starts, max(LENGTHS), seq_lens, max(LENGTHS), table, causal=True
    )

    for q, o, chunk in zip(query.split(LENGTHS), out.split(LENGTHS), order.split(pages), strict=True):
        k, v = (cache[chunk.long()].flatten(0, 1) for cache in (key_cache, value_cache))
        torch.testing.assert_close(o, reference(q, k, v).half(), rtol=1e-2, atol=1e-2)
