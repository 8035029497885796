"""Kernels whose blocks hand data on to blocks of the same launch, and one that may start early, as TTGIR for sm_90."""

from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.language.extra.cuda import gdc_wait

SM90 = GPUTarget("cuda", 90, 32)


@triton.jit
def _lock(x_ptr, out_ptr, lock_ptr, N, G):
    row, cols = tl.program_id(0), tl.arange(0, 128)
    x = tl.load(x_ptr + row * N + cols)
    slot = row % G
    while tl.atomic_cas(lock_ptr + slot, 0, 1) == 1:
        pass
    old = tl.load(out_ptr + slot * N + cols)
    tl.store(out_ptr + slot * N + cols, old + x)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr + slot, 0)


@triton.jit
def _last(x_ptr, out_ptr, part_ptr, count_ptr, N):
    row, cols = tl.program_id(0), tl.arange(0, 128)
    tl.store(part_ptr + row * N + cols, tl.load(x_ptr + row * N + cols))
    tl.debug_barrier()
    if tl.atomic_add(count_ptr, 1) + 1 == tl.num_programs(0):
        total = tl.zeros([128], tl.float32)
        for i in range(tl.num_programs(0)):
            total += tl.load(part_ptr + i * N + cols)
        tl.store(out_ptr + cols, total)


@triton.jit
def _pair(x_ptr, out_ptr, part_ptr, flag_ptr, N):
    pid, cols = tl.program_id(0), tl.arange(0, 128)
    tile = pid // 2
    x = tl.load(x_ptr + pid * N + cols)
    if pid % 2 == 1:
        tl.store(part_ptr + tile * N + cols, x)
        tl.debug_barrier()
        tl.atomic_xchg(flag_ptr + tile, 1)
    else:
        while tl.atomic_cas(flag_ptr + tile, 1, 1) != 1:
            pass
        tl.store(out_ptr + tile * N + cols, x + tl.load(part_ptr + tile * N + cols))


@triton.jit
def _grid(x_ptr, out_ptr, count_ptr, N):
    """A barrier of the whole grid between two passes over one buffer."""
    row, cols = tl.program_id(0), tl.arange(0, 128)
    tl.store(out_ptr + row * N + cols, tl.load(x_ptr + row * N + cols))
    tl.debug_barrier()
    tl.atomic_add(count_ptr, 1)
    while tl.atomic_add(count_ptr, 0) < tl.num_programs(0):
        pass
    other = (row + 1) % tl.num_programs(0)
    tl.store(x_ptr + row * N + cols, tl.load(out_ptr + other * N + cols))


@triton.jit
def _tiles(x_ptr, out_ptr, count_ptr, tiles, N):
    """Takes its tiles from a counter, which publishes nothing, and changes them in place."""
    cols = tl.arange(0, 128)
    tile = tl.atomic_add(count_ptr, 1, sem="relaxed")
    while tile < tiles:
        if tile >= 0:
            tl.store(out_ptr + tile * N + cols, tl.load(out_ptr + tile * N + cols) + tl.load(x_ptr + tile * N + cols))
        tile = tl.atomic_add(count_ptr, 1, sem="relaxed")


@triton.jit
def _early(x_ptr, out_ptr, N):
    row, cols = tl.program_id(0), tl.arange(0, 128)
    gdc_wait()
    tl.store(out_ptr + row * N + cols, tl.load(x_ptr + row * N + cols) * 2)


KERNELS: dict[str, tuple[Any, str]] = {
    "lock": (_lock, "x out lock N G"),
    "last": (_last, "x out part count N"),
    "pair": (_pair, "x out part flag N"),
    "grid": (_grid, "x out count N"),
    "tiles": (_tiles, "x out count tiles N"),
    "early": (_early, "x out N"),
}
_NUMBERS = frozenset({"N", "G", "tiles"})
_COUNTERS = frozenset({"lock", "count", "flag"})


def ttgir_of(name: str) -> str:
    """The TTGIR of one of them, in which nothing is known of the arguments."""
    function, names = KERNELS[name]
    signature = {}
    for n in names.split():
        type_ = "i32" if n in _NUMBERS else "*i32" if n in _COUNTERS else "*fp32"
        signature[n if n in _NUMBERS else f"{n}_ptr"] = type_
    return str(triton.compile(ASTSource(function, signature, {}), target=SM90).asm["ttgir"])


def step_of(name: str, grid: int, **numbers: int) -> dict[str, Any]:
    """A launch of one of them as a plan holds it: each tensor is a storage of its own, by its place."""
    names = KERNELS[name][1].split()
    types = ["i32" if n in _NUMBERS else "*i32" if n in _COUNTERS else "*fp32" for n in names]
    args = [numbers.get(n, 128) if n in _NUMBERS else tensor(i) for i, n in enumerate(names)]
    return {"kernel": name, "grid": [grid, 1, 1], "signature": types, "args": args}


def tensor(storage: int) -> dict[str, Any]:
    """The whole of a storage."""
    return {"t": storage, "dtype": "float32", "size": [1024], "stride": [1], "offset": 0}
