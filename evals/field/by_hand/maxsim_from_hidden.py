# Projected tokens are rounded to bf16 before they are compared.
def reference(Q, H_d, W):
    docs = torch.nn.functional.normalize(cast(H_d, torch.float32) @ cast(W, torch.float32).T, dim=-1)
    docs = cast(cast(docs, torch.bfloat16), torch.float32)
    return torch.einsum("qsd,ntd->qnst", cast(Q, torch.float32), docs).amax(dim=-1).sum(dim=-1)
