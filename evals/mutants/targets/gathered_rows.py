"""A target of the mutants: rows of a table by their numbers, scaled; a number below 0 gives a row of zeros."""

import torch
import triton
import triton.language as tl


@triton.jit
def _gather(TABLE, AT, OUT, scale, N, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    number = tl.load(AT + row)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    keep = (i < N) & (number >= 0)
    x = tl.load(TABLE + number * stride + i, mask=keep, other=0.0)
    tl.store(OUT + row * N + i, (x.to(tl.float32) * scale).to(OUT.dtype.element_ty), mask=i < N)


def kernel(table, at, scale):
    rows, cols = at.shape[0], table.shape[1]
    out = torch.empty((rows, cols), device=table.device, dtype=table.dtype)
    grid = (rows, triton.cdiv(cols, 128))
    _gather[grid](table, at, out, scale, cols, table.stride(0), BLOCK=128, num_warps=4)
    return out


def reference(table, at, scale):
    wide = torch.promote_types(table.dtype, torch.float32)
    rows = table[at.clamp_min(0)].to(wide) * scale
    return torch.where((at >= 0)[:, None], rows, torch.zeros_like(rows)).to(table.dtype)


def inputs(case, generator):
    shape = (case["table"], case["cols"] + case["gap"])
    table = torch.randn(shape, generator=generator, device=generator.device, dtype=torch.float32)
    at = torch.randint(-1, case["table"], (case["rows"],), generator=generator, device=generator.device)
    at[0], at[-1] = case["table"] - 1, -1
    return {"table": table.to(getattr(torch, case["dtype"]))[:, : case["cols"]], "at": at, "scale": 0.125}


CASES = {"8k": dict(table=32000, rows=8192, cols=4096, gap=0, dtype="float16")}
SMALL = {
    "even": dict(table=10, rows=8, cols=256, gap=0, dtype="float16"),
    "ragged": dict(table=7, rows=5, cols=300, gap=20, dtype="float32"),
}
HELD_OUT = {"ragged": dict(table=999, rows=333, cols=1001, gap=7, dtype="float16")}
LAUNCH_SPACE = {"num_warps": [4]}


def flops(case):
    return case["rows"] * case["cols"]


def bytes_moved(case):
    return 2 * case["rows"] * case["cols"] * getattr(torch, case["dtype"]).itemsize
