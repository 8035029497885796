"""A target of the corpus: the float32 sum of every column of X, by programs that add to the result atomically.

The order of the additions differs from run to run, so that results need not be equal bit by bit (NONDETERMINISTIC).
In one held-out case the rows lie so far apart that an offset in elements does not fit 32 bits.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _column_sum(X, OUT, stride, M, N, ROWS: tl.constexpr, COLS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    inside = (rows < M)[:, None] & (cols < N)[None, :]
    x = tl.load(X + rows[:, None].to(tl.int64) * stride + cols[None, :], mask=inside, other=0.0)
    tl.atomic_add(OUT + cols, tl.sum(x.to(tl.float32), 0), mask=cols < N)


def kernel(x):
    M, N = x.shape
    out = torch.zeros((N,), device=x.device, dtype=torch.float32)
    _column_sum[(triton.cdiv(M, 64), triton.cdiv(N, 64))](x, out, x.stride(0), M, N, ROWS=64, COLS=64, num_warps=4)
    return out


def reference(x):
    return x.to(torch.promote_types(x.dtype, torch.float32)).sum(0)


def inputs(case, generator):
    M, N, dtype = case["rows"], case["cols"], getattr(torch, case["dtype"])
    x = torch.randn((M, N), generator=generator, device=generator.device, dtype=torch.float32)
    if not case["stride"]:
        return {"x": x.to(dtype)}
    far = torch.zeros(((M - 1) * case["stride"] + N,), device=generator.device, dtype=dtype)
    view = far.as_strided((M, N), (case["stride"], 1))
    view.copy_((x * 20).to(dtype))
    return {"x": view}


CASES = {"16k": dict(rows=16384, cols=4096, stride=0, dtype="float16")}
SMALL = {
    "even": dict(rows=256, cols=128, stride=0, dtype="float16"),
    "ragged": dict(rows=201, cols=77, stride=0, dtype="float32"),
    "tall": dict(rows=3000, cols=8, stride=0, dtype="float16"),
}
HELD_OUT = {
    "ragged-bf16": dict(rows=4097, cols=333, stride=0, dtype="bfloat16"),
    "far-apart": dict(rows=8, cols=256, stride=1 << 29, dtype="int8"),
}
NONDETERMINISTIC = True
TOLERANCE = {"max_ratio": 8.0, "mean_ratio": 8.0}  # torch adds pairwise on the CPU: sums in another order err more
LAUNCH_SPACE = {"num_warps": [4]}


def flops(case):
    return case["rows"] * case["cols"]


def bytes_moved(case):
    return case["rows"] * case["cols"] * getattr(torch, case["dtype"]).itemsize
