def inputs(case, generator):
    def normal(*shape):
        return torch.randn(shape, generator=generator, device=generator.device).to(getattr(torch, case["dtype"]))

    rows = torch.tensor([11, 5, 8, 14, 1, 16, 4, 5], device=generator.device) * (case["M_TOTAL"] // 64)
    return {
        "mat_a": normal(case["M_TOTAL"], case["K"]),
        "mat_b": (normal(case["M"], case["N"], case["K"]) * 0.02).permute(0, 2, 1),
        "offs": rows.cumsum(0).int(),
        "out": normal(case["M_TOTAL"], case["N"]),
    }


def reference(mat_a, mat_b, offs, out):
    ends = offs.tolist()
    return torch.cat(
        [mat_a[begin:end] @ mat_b[i] for i, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True))]
    )


SMALL = {
    "even": dict(M_TOTAL=64, K=64, N=64, M=8, dtype="bfloat16"),
    "ragged": dict(M_TOTAL=192, K=72, N=40, M=8, dtype="bfloat16"),
}
HELD_OUT = {"odd": dict(M_TOTAL=1344, K=1096, N=712, M=8, dtype="bfloat16")}
