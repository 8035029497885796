"""A target of the corpus: twice a float16 matrix, whose tiles a TMA store writes while the next one is computed."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def _scaled(X, OUT, across, tiles, T: tl.constexpr):
    for t in range(tl.program_id(0), tiles, tl.num_programs(0)):
        m, n = t // across * T, t % across * T
        OUT.store([m, n], X.load([m, n]) * 2)


def kernel(x):
    out = torch.empty_like(x)
    M, N = x.shape
    given = TensorDescriptor.from_tensor(x, [64, 64])
    result = TensorDescriptor.from_tensor(out, [64, 64])
    tiles = triton.cdiv(M, 64) * triton.cdiv(N, 64)
    _scaled[(min(tiles, 264),)](given, result, triton.cdiv(N, 64), tiles, T=64, num_warps=4)
    return out


def reference(x):
    return x * 2


def inputs(case, generator):
    x = torch.randn((case["rows"], case["cols"]), generator=generator, device=generator.device, dtype=torch.float32)
    return {"x": x.to(torch.float16)}


CASES = {"4k": dict(rows=4096, cols=4096)}
SMALL = {"even": dict(rows=128, cols=128), "ragged": dict(rows=72, cols=200)}
HELD_OUT = {"ragged": dict(rows=1000, cols=3000)}
LAUNCH_SPACE = {"num_warps": [4]}


def flops(case):
    return case["rows"] * case["cols"]


def bytes_moved(case):
    return 4 * case["rows"] * case["cols"]
