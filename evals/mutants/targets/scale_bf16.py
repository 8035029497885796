"""A target of the mutants: twice a vector plus one, in bf16 alone, which not every interpreter can judge."""

import torch
import triton
import triton.language as tl


@triton.jit
def _scale(X, Y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + at, mask=at < n).to(tl.float32)
    tl.store(Y + at, (2 * x + 1).to(Y.dtype.element_ty), mask=at < n)


def kernel(x):
    y = torch.empty_like(x)
    _scale[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024, num_warps=4)
    return y


def reference(x):
    return (2 * x.to(torch.promote_types(x.dtype, torch.float32)) + 1).to(x.dtype)


def inputs(case, generator):
    x = torch.randn((case["n"],), generator=generator, device=generator.device, dtype=torch.float32)
    return {"x": x.to(torch.bfloat16)}


CASES = {"16m": dict(n=1 << 24)}
SMALL = {"even": dict(n=2048), "ragged": dict(n=1500)}
HELD_OUT = {"odd": dict(n=99991)}
LAUNCH_SPACE = {"num_warps": [4]}


def flops(case):
    return 2 * case["n"]


def bytes_moved(case):
    return 4 * case["n"]
