"""A target of the mutants: the running sums of every row, block by block, with what came before carried on."""

import torch
import triton
import triton.language as tl


@triton.jit
def _running(X, OUT, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    before = tl.full([], 0, tl.int32)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(X + row * N + at, mask=at < N, other=0)
        tl.store(OUT + row * N + at, before + tl.cumsum(x, 0), mask=at < N)
        before += tl.sum(x, 0)


def kernel(x):
    rows, cols = x.shape
    out = torch.empty_like(x)
    _running[(rows,)](x, out, cols, BLOCK=128, num_warps=4)
    return out


def reference(x):
    return x.cumsum(-1).to(torch.int32)


def inputs(case, generator):
    shape = (case["rows"], case["cols"])
    return {"x": torch.randint(-9, 10, shape, generator=generator, device=generator.device, dtype=torch.int32)}


CASES = {"4k": dict(rows=4096, cols=4096)}
SMALL = {"even": dict(rows=4, cols=512), "ragged": dict(rows=5, cols=333), "short": dict(rows=7, cols=50)}
HELD_OUT = {"ragged": dict(rows=99, cols=1999)}
LAUNCH_SPACE = {"num_warps": [4]}


def flops(case):
    return 2 * case["rows"] * case["cols"]


def bytes_moved(case):
    return 8 * case["rows"] * case["cols"]
