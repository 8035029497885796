"""A target of the mutants: A times B transposed, through tensor descriptors only, which mask what lies outside."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def _gemm(A, B, C, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(A.load([m, k]), B.load([n, k]).T, acc)
    C.store([m, n], acc.to(tl.float16))


def kernel(a, b):
    (M, K), N = a.shape, b.shape[0]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    x, y, z = (TensorDescriptor.from_tensor(t, block) for t, block in ((a, [64, 32]), (b, [64, 32]), (c, [64, 64])))
    _gemm[(triton.cdiv(M, 64), triton.cdiv(N, 64))](x, y, z, K, BM=64, BN=64, BK=32, num_warps=4, num_stages=3)
    return c


def reference(a, b):
    wide = torch.promote_types(a.dtype, torch.float32)
    return (a.to(wide) @ b.to(wide).T).to(a.dtype)


def inputs(case, generator):
    def tensor(*shape):
        return torch.randn(shape, generator=generator, device=generator.device, dtype=torch.float32).to(torch.float16)

    return {"a": tensor(case["M"], case["K"]), "b": tensor(case["N"], case["K"])}


CASES = {"2k": dict(M=2048, N=2048, K=2048)}
SMALL = {"even": dict(M=64, N=128, K=96), "ragged": dict(M=72, N=56, K=104)}
HELD_OUT = {"ragged": dict(M=200, N=168, K=488)}
LAUNCH_SPACE = {"num_warps": [4], "num_stages": [3]}


def flops(case):
    return 2 * case["M"] * case["N"] * case["K"]


def bytes_moved(case):
    return 2 * (case["M"] * case["K"] + case["N"] * case["K"] + case["M"] * case["N"])
