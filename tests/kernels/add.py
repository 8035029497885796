"""A target small enough for fast tests: z = x + y, with an autotuned elementwise kernel."""

import torch
import triton
import triton.language as tl


@triton.autotune(
    configs=[triton.Config({"BLOCK": 1024}, num_warps=4), triton.Config({"BLOCK": 2048}, num_warps=8)], key=["n"]
)
@triton.jit
def _add(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(z_ptr + at, tl.load(x_ptr + at, mask=inside) + tl.load(y_ptr + at, mask=inside), mask=inside)


def kernel(x, y):
    z = torch.empty_like(x)
    _add[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, z, x.numel())
    return z


def reference(x, y):
    return x + y


def inputs(case, generator):
    def tensor():
        return torch.randn(case["n"], generator=generator, device=generator.device, dtype=torch.float32)

    return {"x": tensor(), "y": tensor()}


CASES = {"1m": dict(n=1 << 20), "16m": dict(n=1 << 24)}
SMALL = {"even": dict(n=2048), "ragged": dict(n=1000)}
HELD_OUT = {"odd": dict(n=9_991)}
LAUNCH_SPACE = {"BLOCK": [512, 1024], "num_warps": [4]}


def flops(case):
    return case["n"]


def bytes_moved(case):
    return 12 * case["n"]
