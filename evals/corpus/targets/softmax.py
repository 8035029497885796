"""A target of the corpus: softmax of every row of scale * X, and the log-sum-exp of the row.

X is [rows, cols] with any stride between rows. Both results are float32. Two cases have one shape and differ in the
scale alone: a result kept from one cannot pass for the other. The sharp ones overflow without the maximum taken off.
"""

import torch
import triton
import triton.language as tl


@triton.autotune(
    configs=[triton.Config({"BLOCK": 1024}, num_warps=4), triton.Config({"BLOCK": 256}, num_warps=2)], key=["N"]
)
@triton.jit
def _softmax(X, Y, LSE, scale, stride, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptrs = X + row * stride
    y_ptrs = Y + row * N
    most = tl.full([], -float("inf"), tl.float32)
    total = tl.full([], 0.0, tl.float32)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptrs + at, mask=at < N, other=-float("inf")).to(tl.float32) * scale
        new = tl.maximum(most, tl.max(x, 0))
        total = total * tl.exp(most - new) + tl.sum(tl.exp(x - new), 0)
        most = new
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptrs + at, mask=at < N, other=0.0).to(tl.float32) * scale
        tl.store(y_ptrs + at, tl.exp(x - most) / total, mask=at < N)
    tl.store(LSE + row, most + tl.log(total))


def kernel(x, scale):
    rows, cols = x.shape
    y = torch.empty((rows, cols), device=x.device, dtype=torch.float32)
    lse = torch.empty((rows,), device=x.device, dtype=torch.float32)
    _softmax[(rows,)](x, y, lse, scale, x.stride(0), cols)
    return y, lse


def reference(x, scale):
    wide = torch.promote_types(x.dtype, torch.float32)
    scores = x.to(wide) * scale
    return torch.softmax(scores, -1), torch.logsumexp(scores, -1)


def inputs(case, generator):
    shape = (case["rows"], case["cols"] + case["gap"])
    x = torch.randn(shape, generator=generator, device=generator.device, dtype=torch.float32)
    return {"x": x.to(getattr(torch, case["dtype"]))[:, : case["cols"]], "scale": case["scale"]}


CASES = {
    "8k": dict(rows=4096, cols=8192, gap=0, scale=0.5, dtype="float32"),
    "8k-sharp": dict(rows=4096, cols=8192, gap=0, scale=40.0, dtype="float32"),
}
SMALL = {
    "even": dict(rows=6, cols=2048, gap=0, scale=0.5, dtype="float32"),
    "even-sharp": dict(rows=6, cols=2048, gap=0, scale=40.0, dtype="float32"),
    "ragged": dict(rows=5, cols=1000, gap=24, scale=2.0, dtype="float16"),
}
HELD_OUT = {"ragged-bf16": dict(rows=777, cols=5001, gap=7, scale=3.0, dtype="bfloat16")}
LAUNCH_SPACE = {"BLOCK": [1024], "num_warps": [4]}


def flops(case):
    return 8 * case["rows"] * case["cols"]


def bytes_moved(case):
    return case["rows"] * case["cols"] * (4 + getattr(torch, case["dtype"]).itemsize)
