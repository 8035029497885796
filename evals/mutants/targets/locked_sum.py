"""A target of the mutants: sums of every fourth row, by programs that take a lock for each read and write of a sum.

The order of the additions differs from run to run (NONDETERMINISTIC).
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _locked_sum(X, OUT, LOCK, N, SUMS, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(X + row * N + at, mask=at < N, other=0.0)
    place = row % SUMS
    while tl.atomic_cas(LOCK + place, 0, 1, sem="acquire") == 1:
        pass
    old = tl.load(OUT + place * N + at, mask=at < N, other=0.0)
    tl.store(OUT + place * N + at, old + x, mask=at < N)
    tl.debug_barrier()
    tl.atomic_xchg(LOCK + place, 0, sem="release")


def kernel(x):
    rows, cols = x.shape
    out = torch.zeros((4, cols), device=x.device, dtype=torch.float32)
    lock = torch.zeros((4,), device=x.device, dtype=torch.int32)
    _locked_sum[(rows,)](x, out, lock, cols, 4, BLOCK=triton.next_power_of_2(cols), num_warps=4)
    return out


def reference(x):
    return torch.stack([x[place::4].sum(0) for place in range(4)])


def inputs(case, generator):
    shape = (case["rows"], case["cols"])
    return {"x": torch.randn(shape, generator=generator, device=generator.device, dtype=torch.float32)}


CASES = {"4k": dict(rows=4096, cols=1024)}
SMALL = {"even": dict(rows=16, cols=128), "ragged": dict(rows=9, cols=100)}
HELD_OUT = {"odd": dict(rows=77, cols=999)}
NONDETERMINISTIC = True
TOLERANCE = {"max_ratio": 8.0, "mean_ratio": 8.0}  # torch adds pairwise: sums in another order err more
LAUNCH_SPACE = {"num_warps": [4]}


def flops(case):
    return case["rows"] * case["cols"]


def bytes_moved(case):
    return 4 * case["rows"] * case["cols"]
