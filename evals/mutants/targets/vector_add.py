"""A target of the mutants: the sum of two vectors, by programs of one block each."""

import torch
import triton
import triton.language as tl


@triton.jit
def _add(X, Y, OUT, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + at, mask=at < n, other=0.0)
    y = tl.load(Y + at, mask=at < n, other=0.0)
    tl.store(OUT + at, x + y, mask=at < n)


def kernel(x, y):
    out = torch.empty_like(x)
    n = x.numel()
    _add[(triton.cdiv(n, 512),)](x, y, out, n, BLOCK=512, num_warps=4)
    return out


def reference(x, y):
    return x + y


def inputs(case, generator):
    def tensor():
        return torch.randn((case["n"],), generator=generator, device=generator.device, dtype=torch.float32)

    return {"x": tensor(), "y": tensor()}


CASES = {"16m": dict(n=1 << 24)}
SMALL = {"even": dict(n=2048), "ragged": dict(n=1700), "one": dict(n=1)}
HELD_OUT = {"odd": dict(n=99991)}
LAUNCH_SPACE = {"num_warps": [4]}


def flops(case):
    return case["n"]


def bytes_moved(case):
    return 12 * case["n"]
