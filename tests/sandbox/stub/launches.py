"""A target whose launches differ in what a launcher must get right: argument types, descriptors, clusters."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def _scalars(
    out,
    flag: tl.int1,
    a: tl.int8,
    b: tl.int16,
    c: tl.int32,
    d: tl.int64,
    e: tl.uint8,
    f: tl.uint16,
    g: tl.uint32,
    h: tl.uint64,
    half: tl.float16,
    brain: tl.bfloat16,
    single: tl.float32,
    double: tl.float64,
    nested,
    nothing,
    BLOCK: tl.constexpr,
):
    total = a.to(tl.float32) + b + c + d + e + f + g + h + half + brain + single + double.to(tl.float32)
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.where(flag, total, nested[1][0]) + tl.load(nested[0] + at) + nested[1][1])


@triton.jit
def _boxes(source, into, n, BLOCK: tl.constexpr):
    into.store([tl.program_id(0) * BLOCK, 0], source.load([tl.program_id(0) * BLOCK, 0]))


@triton.jit
def _clustered(x, z, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


def kernel(x, which):
    z = torch.empty_like(x)
    if which == 0:
        nested = (x, (41, 0.1))
        integers = True, -7, -3000, -70000, -(1 << 40), 200, 60000, 3_000_000_000, 1 << 63
        _scalars[(3, 2)](z, *integers, 1.5, 0.3, 0.3, 0.1, nested, None, BLOCK=128)
    elif which == 1:
        source = TensorDescriptor(x, [96, 256], [256, 1], [16, 64], "nan")
        into = TensorDescriptor(z, [96, 256], [256, 1], [16, 64])
        _boxes[(6,)](source, into, x.numel(), BLOCK=16)
    else:
        options = dict(num_ctas=2, num_warps=8, launch_cooperative_grid=True, launch_pdl=True)
        _clustered[(5, 3)](x, z, x.numel(), BLOCK=256, **options)
    return z


def reference(x, which):
    return x


def inputs(case, generator):
    return {"x": torch.randn(96, 256, generator=generator, device=generator.device), "which": case["which"]}


CASES = {"scalars": dict(which=0), "boxes": dict(which=1), "clustered": dict(which=2)}
SMALL = {}
HELD_OUT = {}


def flops(case):
    return 1


def bytes_moved(case):
    return 1
