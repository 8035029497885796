"""A target of the mutants: a matrix product of whole tiles, without a mask, whose loop counts tiles."""

import torch
import triton
import triton.language as tl


@triton.jit
def _gemm(A, B, C, N, K, tiles, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    a_ptrs = A + m[:, None] * K + k[None, :]
    b_ptrs = B + k[:, None] * N + n[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(tiles):
        acc = tl.dot(tl.load(a_ptrs), tl.load(b_ptrs), acc)
        a_ptrs += BK
        b_ptrs += BK * N
    tl.store(C + m[:, None] * N + n[None, :], acc.to(C.dtype.element_ty))


def kernel(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    _gemm[(M // 64, N // 32)](a, b, c, N, K, K // 32, BM=64, BN=32, BK=32, num_warps=4, num_stages=3)
    return c


def reference(a, b):
    wide = torch.promote_types(a.dtype, torch.float32)
    return (a.to(wide) @ b.to(wide)).to(a.dtype)


def inputs(case, generator):
    def tensor(*shape):
        return torch.randn(shape, generator=generator, device=generator.device, dtype=torch.float32).to(torch.float16)

    return {"a": tensor(case["M"], case["K"]), "b": tensor(case["K"], case["N"])}


CASES = {"2k": dict(M=2048, N=2048, K=2048)}
SMALL = {"tall": dict(M=128, N=64, K=96), "wide": dict(M=64, N=96, K=128)}
HELD_OUT = {"odd": dict(M=192, N=160, K=480)}
LAUNCH_SPACE = {"num_warps": [4], "num_stages": [3]}


def flops(case):
    return 2 * case["M"] * case["N"] * case["K"]


def bytes_moved(case):
    return 2 * (case["M"] * case["K"] + case["N"] * case["K"] + case["M"] * case["N"])
