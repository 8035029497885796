"""Real TTGIR for tests of its reader, made by the installed Triton for sm_90: loops, regions, partitions, odd words."""

from functools import cache
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def _sum(a, b):
    return a + b


@triton.jit
def odd(x, y, n, B: tl.constexpr):
    """All that makes parsing hard: regions of reductions, while, if with results, braces and quotes in strings."""
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=0.0)
    s = tl.associative_scan(v, 0, _sum)
    m = tl.max(v, 0)
    k = 0
    while k < n:
        k = k * 2 + 1
    if m > 3.0:
        s = s * 2.0
        tl.device_print("so { much", m)
    else:
        s = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [s], dtype=tl.float32, is_pure=True, pack=1)
    tl.atomic_add(y + i, s, mask=i < n)
    tl.device_assert(k > 0, 'k {x} } " -> loc(')
    tl.store(y + i, s + k, mask=i < n)


@triton.jit
def gemm(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, WS: tl.constexpr):
    """A tile of a GEMM on device-side descriptors, warp-specialized where WS says so."""
    da = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    db = tl.make_tensor_descriptor(b, [N, K], [K, 1], [BN, BK])
    dc = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in tl.range(0, tl.cdiv(K, BK), warp_specialize=WS):
        acc = tl.dot(da.load([row, k * BK]), db.load([column, k * BK]).T, acc)
    dc.store([row, column], acc.to(tl.float16))


_GEMM = {"a": "*fp16", "b": "*fp16", "c": "*fp16", "M": "i32", "N": "i32", "K": "i32"}


@cache
def text(name: str) -> str:
    """odd, pipelined or specialized: TTGIR with its source locations."""
    if name == "odd":
        return _compile(odd, {"x": "*fp32", "y": "*fp32", "n": "i32"}, {"B": 1024}, debug=True)
    tiles = {"BM": 128, "BN": 128, "BK": 64, "WS": name == "specialized"}
    return _compile(gemm, _GEMM, tiles, num_warps=4, num_stages=3)


def _compile(kernel: Any, types: dict[str, str], constants: dict[str, Any], **options: Any) -> str:
    signature = types | dict.fromkeys(constants, "constexpr")
    aligned = {(i,): [["tt.divisibility", 16]] for i in range(len(types))}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=aligned)
    return str(triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["ttgir"])
