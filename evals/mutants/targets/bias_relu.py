"""A target of the mutants: relu(X + bias of the column), where a NaN stays one, and the greatest value of each row."""

import torch
import triton
import triton.language as tl


@triton.jit
def _bias_relu(X, B, Y, MOST, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    most = tl.full([], 0.0, tl.float32)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(X + row * N + at, mask=at < N, other=-1.0).to(tl.float32)
        b = tl.load(B + at, mask=at < N, other=0.0).to(tl.float32)
        y = x + b
        y = tl.where(y < 0, 0.0, y)
        most = tl.maximum(most, tl.max(tl.where(at < N, y, 0.0), 0))
        tl.store(Y + row * N + at, y.to(Y.dtype.element_ty), mask=at < N)
    tl.store(MOST + row, most)


def kernel(x, b):
    rows, cols = x.shape
    y = torch.empty_like(x)
    most = torch.empty((rows,), device=x.device, dtype=torch.float32)
    _bias_relu[(rows,)](x, b, y, most, cols, BLOCK=256, num_warps=4)
    return y, most


def reference(x, b):
    wide = torch.promote_types(x.dtype, torch.float32)
    y = torch.relu(x.to(wide) + b.to(wide))
    return y.to(x.dtype), y.amax(-1)


def inputs(case, generator):
    dtype = getattr(torch, case["dtype"])

    def tensor(*shape):
        return torch.randn(shape, generator=generator, device=generator.device, dtype=torch.float32).to(dtype)

    return {"x": tensor(case["rows"], case["cols"]), "b": tensor(case["cols"])}


CASES = {"4k": dict(rows=8192, cols=4096, dtype="float16")}
SMALL = {
    "even": dict(rows=6, cols=512, dtype="float16"),
    "ragged": dict(rows=5, cols=700, dtype="float32"),
    "short": dict(rows=9, cols=31, dtype="float16"),
}
HELD_OUT = {"ragged": dict(rows=555, cols=3001, dtype="float16")}
LAUNCH_SPACE = {"num_warps": [4]}


def flops(case):
    return 3 * case["rows"] * case["cols"]


def bytes_moved(case):
    return 2 * case["rows"] * case["cols"] * getattr(torch, case["dtype"]).itemsize
