"""Adds the rows of X in rounds that a barrier counts, in Gluon: with no round it uses a barrier that is none."""

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier


@gluon.jit
def _rounds(X, Y, rows):
    at = gl.arange(0, 128, gl.BlockedLayout([1], [32], [4], [0]))
    bar = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    last = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(2):
        mbarrier.init(bar.index(i), count=1)
        mbarrier.init(last.index(i), count=1)
    total = gl.zeros([128], gl.float32, gl.BlockedLayout([1], [32], [4], [0]))
    for j in range(rows // 16):
        mbarrier.arrive(bar.index(j % 2))
        mbarrier.wait(bar.index(j % 2), (j // 2) & 1)
        for i in gl.static_range(16):
            total += gl.load(X + (j * 16 + i) * 128 + at)
    mbarrier.arrive(last.index((rows // 16 - 1) % 2))
    gl.store(Y + at, total)


def kernel(x):
    rows = x.shape[0]
    y = torch.empty(128, device=x.device)
    _rounds[(1,)](x, y, rows, num_warps=4)
    return y


def reference(x):
    return x.sum(0)


def inputs(case, generator):
    return {"x": torch.randn((case["rows"], 128), generator=generator, device=generator.device)}


CASES = {"large": dict(rows=4096)}
SMALL = {"one": dict(rows=16), "odd": dict(rows=48)}
HELD_OUT = {"some": dict(rows=160)}


def flops(case):
    return 128 * case["rows"]


def bytes_moved(case):
    return 512 * (case["rows"] + 1)
