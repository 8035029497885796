"""Kernels with one known defect each, as targets that run: what a profile must name first, without a GPU and with one.

Every block reads `PART` elements of its own, so that any number of blocks stays within the input.
"""

from collections.abc import Mapping
from dataclasses import dataclass

DOTS = """
@triton.jit
def _run(X, Z, K, TILE: tl.constexpr, STAGES: tl.constexpr):
    i, k = tl.arange(0, TILE), tl.arange(0, 64)
    x_ptrs = X + (tl.program_id(0) * TILE + i)[:, None] * K + k[None, :]
    y_ptrs = X + k[:, None] + i[None, :] * K
    acc = tl.zeros([TILE, TILE], tl.float32)
    for at in tl.range(0, K, 64, num_stages=STAGES):
        acc = tl.dot(tl.load(x_ptrs + at), tl.load(y_ptrs + at), acc)
    tl.store(Z + (tl.program_id(0) * TILE + i)[:, None] * TILE + i[None, :], acc)


def kernel(x):
    z = torch.empty((x.shape[0], 128), device=x.device, dtype=torch.float32)
    _run[(BLOCKS,)](x, z, x.shape[1], TILE=128, STAGES=3, num_warps=4)
    return z


def reference(x):
    return x.to(torch.float32) @ x[:128].to(torch.float32).T


def flops(case):
    return 2 * 128 * PART * BLOCKS


def bytes_moved(case):
    return (2 * PART + 4 * 128 * 128) * BLOCKS
"""
COLUMNS = """
@triton.jit
def _run(X, Z, K, WIDTH: tl.constexpr):
    row, col = tl.program_id(0) * 128 + tl.arange(0, 128), tl.arange(0, WIDTH)
    for at in range(0, K, WIDTH):
        x = tl.load(X + row[None, :] * K + at + col[:, None] * STRIDE)
        tl.store(Z + row[None, :] * K + at + col[:, None] * STRIDE, x)


def kernel(x):
    z = torch.empty_like(x)
    _run[(BLOCKS,)](x, z, x.shape[1], WIDTH=64, num_warps=8)
    return z


def reference(x):
    return x


def flops(case):
    return 0


def bytes_moved(case):
    return 4 * PART * BLOCKS
"""
WIDE = """
@triton.jit
def _run(X, Z, TIMES, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    total = tl.zeros([TILE], tl.float32)
    most = tl.zeros([TILE], tl.float32)
    for n in range(TIMES):
        x = tl.load(X + (tl.program_id(0) * TIMES + n) * TILE + at).to(tl.float32)
        total += tl.exp(x)
        most = tl.maximum(most, x)
    tl.store(Z + tl.program_id(0) * TILE + at, total - most)


def kernel(x):
    z = torch.empty((BLOCKS, 8192), device=x.device, dtype=torch.float32)
    _run[(BLOCKS,)](x, z, PART // 8192, TILE=8192, num_warps=4)
    return z


def reference(x):
    tiles = x.reshape(BLOCKS, -1, 8192).to(torch.float32)
    return tiles.exp().sum(1) - tiles.max(1).values.clamp(min=0)


def flops(case):
    return 3 * PART * BLOCKS


def bytes_moved(case):
    return (2 * PART + 4 * 8192) * BLOCKS
"""
TURNED = """
@triton.jit
def _run(X, Z, TIMES):
    i = tl.arange(0, 64)
    acc = tl.zeros([64, 64], tl.float32)
    for n in range(TIMES):
        x = tl.load(X + (tl.program_id(0) * TIMES + n) * 4096 + i[:, None] * 64 + i[None, :]).to(tl.float32)
        acc = tl.trans(acc) + x
    tl.store(Z + tl.program_id(0) * 4096 + i[:, None] * 64 + i[None, :], acc)


def kernel(x):
    z = torch.empty((BLOCKS, 64, 64), device=x.device, dtype=torch.float32)
    _run[(BLOCKS,)](x, z, PART // 4096, num_warps=8)
    return z


def reference(x):
    tiles = x.reshape(BLOCKS, -1, 64, 64).to(torch.float32)
    return tiles[:, 1::2].sum(1) + tiles[:, ::2].sum(1).transpose(1, 2)


def flops(case):
    return PART * BLOCKS


def bytes_moved(case):
    return (2 * PART + 4 * 4096) * BLOCKS
"""
CROSSED = """
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def _run(X, Z, TIMES):
    rows: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [8, 1], [1, 0])
    columns: gl.constexpr = gl.BlockedLayout([2, 1], [32, 1], [1, 8], [0, 1])
    plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, order=[1, 0])
    row = gl.arange(0, 64, gl.SliceLayout(1, rows))
    col = gl.arange(0, 64, gl.SliceLayout(0, rows))
    at = row[:, None] * 64 + col[None, :]
    acc = gl.zeros([64, 64], gl.float32, columns)
    mem = gl.allocate_shared_memory(gl.float32, [64, 64], plain)
    for n in range(TIMES):
        x = gl.load(X + (gl.program_id(0) * TIMES + n) * 4096 + at)
        mem.store(x.to(gl.float32))
        acc += mem.load(columns)
    out_row = gl.arange(0, 64, gl.SliceLayout(1, columns))
    out_col = gl.arange(0, 64, gl.SliceLayout(0, columns))
    gl.store(Z + gl.program_id(0) * 4096 + out_row[:, None] + out_col[None, :] * 64, acc)


def kernel(x):
    z = torch.empty((BLOCKS, 64, 64), device=x.device, dtype=torch.float32)
    _run[(BLOCKS,)](x, z, PART // 4096, num_warps=8)
    return z


def reference(x):
    return x.reshape(BLOCKS, -1, 64, 64).to(torch.float32).sum(1).transpose(1, 2)


def flops(case):
    return PART * BLOCKS


def bytes_moved(case):
    return (2 * PART + 4 * 4096) * BLOCKS
"""
TARGET = """
import torch
import triton
import triton.language as tl

BLOCKS = 2112
PART = 128 * 1024
STRIDE = tl.constexpr(1)
{part}

def inputs(case, generator):
    x = torch.randn((128 * BLOCKS, 1024), generator=generator, device=generator.device, dtype=torch.float32)
    return {{"x": x.to(torch.float16)}}


CASES = {{"it": dict()}}
SMALL = {{"it": dict()}}
HELD_OUT = {{"it": dict()}}
"""


@dataclass(frozen=True)
class Variant:
    """A target with one defect."""

    part: str
    changes: tuple[tuple[str, str], ...] = ()  # to the target of this part: old, new
    line: str = ""  # that the defect is on; empty for one of the whole kernel

    @property
    def text(self) -> str:
        text = TARGET.format(part=self.part)
        for old, new in self.changes:
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        return text


SHARED = (  # sixteen blocks read each tile, so that dots take longer than device memory
    ("(tl.program_id(0) * TILE + i)[:, None] * K + k", "(tl.program_id(0) // 16 * TILE + i)[:, None] * K + k"),
    ("k[:, None] + i[None, :] * K", "k[:, None] + (tl.program_id(0) % 16 * TILE + i)[None, :] * K"),
    (
        "return x.to(torch.float32) @ x[:128].to(torch.float32).T",
        "x = x.to(torch.float32).reshape(BLOCKS, 128, -1)\n"
        "    return (x[: BLOCKS // 16, None] @ x[:16].transpose(1, 2)).reshape(-1, 128)",
    ),
    ("return (2 * PART + 4 * 128 * 128)", "return (2 * PART // 16 + 4 * 128 * 128)"),
)
REPEATED = (  # four dots of each tile, so that they take longer than to copy it from the L2
    (
        "        acc = tl.dot(tl.load(x_ptrs + at), tl.load(y_ptrs + at), acc)\n",
        "        x, y = tl.load(x_ptrs + at), tl.load(y_ptrs + at)\n"
        "        for _ in tl.static_range(4):\n"
        "            acc = tl.dot(x, y, acc)\n",
    ),
    ("return (x[: BLOCKS // 16, None]", "return (4 * x[: BLOCKS // 16, None]"),
    ("return 2 * 128 * PART * BLOCKS", "return 4 * 2 * 128 * PART * BLOCKS"),
)
VARIANTS: Mapping[str, Variant] = {  # what a summary must call it
    "spill": Variant(DOTS, (("num_warps=4", "num_warps=4, maxnreg=96"),), "tl.dot"),
    "serialized dots": Variant(DOTS, (("num_warps=4", "num_warps=8"), *SHARED, *REPEATED)),
    "too few stages": Variant(DOTS, (("STAGES=3", "STAGES=1"),)),
    "uncoalesced access": Variant(COLUMNS, (("WIDTH=64", "WIDTH=2"),), "x = tl.load"),
    "layout conversion": Variant(TURNED, (), "tl.trans"),
    "low occupancy": Variant(WIDE),
    "tail wave": Variant(DOTS, (("BLOCKS = 2112", "BLOCKS = 140"), ("STAGES=3", "STAGES=6"))),  # one block fits an SM
    "bank conflicts": Variant(CROSSED, (), "mem.load"),  # the lanes of a warp read a column: all of one bank
}
STATIC = frozenset(VARIANTS) - {"bank conflicts"}  # that need no GPU to be seen
HEALTHY = {  # to be built, not run: the sums of the last one are others than its reference
    "dots": Variant(DOTS),
    "columns": Variant(COLUMNS),
    "additions": Variant(TURNED, (("tl.trans(acc) + x", "acc + x"),)),
}
