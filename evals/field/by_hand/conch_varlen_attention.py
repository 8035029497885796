# As the package documents it: the keys of a row of the table are in the pages that it names, `seq_lens` of them.
def reference(query, key_cache, value_cache, cu_seqlens_q, max_seqlen_q, seq_lens, max_seqlen_k, block_table, causal):
    results, starts, groups = [], cu_seqlens_q.tolist(), query.shape[1] // key_cache.shape[2]
    for i, length in enumerate(seq_lens.tolist()):
        q = query[starts[i] : starts[i + 1]]
        pages = block_table[i, : -(-length // key_cache.shape[1])].long()
        k, v = (c[pages].flatten(0, 1)[:length].repeat_interleave(groups, 1) for c in (key_cache, value_cache))
        scores = torch.einsum("qhd,khd->hqk", q, k) * q.shape[-1] ** -0.5
        future = torch.ones(len(q), length, dtype=torch.bool, device=q.device).triu(1 + length - len(q))
        results.append(torch.einsum("hqk,khd->qhd", scores.masked_fill(future, float("-inf")).softmax(-1), v))
    return torch.cat(results)


# Every sequence is asked for as a whole, as in the program: 8, 4, 3 and 1 of 16 parts; the last may end within a page.
def inputs(case, generator):
    def normal(*shape):
        return torch.randn(shape, generator=generator, device=generator.device).to(getattr(torch, case["dtype"]))

    pages = [case["L"] // 16 * n for n in (8, 4, 3, 1)]
    lengths = torch.tensor([n * case["P"] for n in pages])
    lengths[-1] -= sum(pages) * case["P"] - case["M"]
    order = torch.randperm(sum(pages), generator=generator, device=generator.device).int()
    table = [torch.nn.functional.pad(p, (0, pages[0] - len(p))) for p in order.split(pages)]
    return {
        "query": normal(case["M"], case["N"], case["K"]),
        "key_cache": normal(case["L"], case["P"], case["Q"], case["K"]),
        "value_cache": normal(case["L"], case["P"], case["Q"], case["K"]),
        "cu_seqlens_q": torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int().to(generator.device),
        "max_seqlen_q": pages[0] * case["P"],
        "seq_lens": lengths.int().to(generator.device),
        "max_seqlen_k": pages[0] * case["P"],
        "block_table": torch.stack(table),
        "causal": True,
    }


SMALL = {
    "even": dict(M=256, N=4, K=32, L=16, P=16, Q=2, R=5, S=4, dtype="float16"),
    "ragged": dict(M=253, N=6, K=24, L=16, P=16, Q=2, R=5, S=4, dtype="float16"),
}
HELD_OUT = {"odd": dict(M=2301, N=24, K=96, L=144, P=16, Q=8, R=5, S=4, dtype="float16")}
