# A chunk's share of the gradient, and what the state after it hands back, as the kernel's file describes them.
def reference(
    matQ, matK, matV, vecI, vecA, vecB, matCstate_all, vecNstate_all, vecN_out, matDeltaH_out, matDeltaC_states,
    qk_scale, normalize, chunk_size, siz_b_LQ, siz_b_LKV, eps, output_dtype,
):  # fmt: skip
    q, v, grad = (x.unflatten(2, (-1, chunk_size)) for x in (matQ, matV, matDeltaH_out))
    log_in = torch.nn.functional.logsigmoid(vecI).unflatten(2, (-1, chunk_size))
    decay = (vecB[..., :, None] - vecB[..., None, :] + log_in[..., None, :]).exp().tril()
    states = matDeltaC_states.unflatten(2, (-1, q.shape[-1]))[:, :, 1:].to(v.dtype)
    handed_back = v @ states.transpose(-1, -2) * vecA.exp()[..., None]
    scores = (grad @ v.transpose(-1, -2) * qk_scale * decay).to(q.dtype)
    return (scores.transpose(-1, -2) @ q + handed_back).flatten(2, 3).to(q.dtype)


# There are as many heads as chunks, NH = S / N, and K = (NH + 1) * DHQK: shapes share these names.
SMALL = {
    "even": dict(B=1, NH=2, S=128, DHQK=32, M=64, N=64, K=96),
    "wide": dict(B=1, NH=3, S=384, DHQK=64, M=32, N=128, K=256),
}
HELD_OUT = {"odd": dict(B=1, NH=6, S=768, DHQK=128, M=256, N=128, K=896)}
