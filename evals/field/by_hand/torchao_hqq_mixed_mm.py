def inputs(case, generator):
    def uniform(*shape):
        return torch.rand(shape, generator=generator, device=generator.device)

    return {
        "a": torch.randn(case["M"], case["N"] * 2, generator=generator, device=generator.device).half(),
        "b": (uniform(case["N"], case["K"]) * 256).to(torch.uint8),
        "scales": (uniform(case["K"], case["L"]) * 0.01).half().T,
        "zeros": (uniform(case["K"], case["L"]) * 16).floor().half().T,
        "group_size": 128,
    }


# Two rows of the weight are in one byte, the first in the low half; a group is of rows beside each other.
def reference(a, b, scales, zeros, group_size):
    weight = torch.stack((b & 15, b >> 4), 1).view(-1, group_size, b.shape[1])
    return a @ ((weight.to(a.dtype) - zeros[:, None]) * scales[:, None]).flatten(0, 1)


# The kernel reads scales of whole blocks of 256 columns, without a mask.
SMALL = {
    "even": dict(M=64, N=128, K=256, L=2, dtype="float16"),
    "ragged": dict(M=61, N=192, K=512, L=3, dtype="float16"),
}
HELD_OUT = {"odd": dict(M=381, N=1536, K=3072, L=24, dtype="float16")}
