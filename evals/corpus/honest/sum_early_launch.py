# does: starts the second launch early, which waits for the first before it reads the partial sums
# target: column_sum
# vary WARPS: 1 | 2
import torch
import triton
import triton.language as tl


@triton.jit
def _partial(X, PART, stride, M, N, ROWS: tl.constexpr, COLS: tl.constexpr):
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    total = tl.zeros([COLS], tl.float32)
    for start in range(tl.program_id(0) * ROWS, M, tl.num_programs(0) * ROWS):
        rows = start + tl.arange(0, ROWS)
        inside = (rows < M)[:, None] & (cols < N)[None, :]
        x = tl.load(X + rows[:, None].to(tl.int64) * stride + cols[None, :], mask=inside, other=0.0)
        total += tl.sum(x.to(tl.float32), 0)
    tl.store(PART + tl.program_id(0) * N + cols, total, mask=cols < N)


@triton.jit
def _total(PART, OUT, P, N, COLS: tl.constexpr):
    tl.inline_asm_elementwise("griddepcontrol.wait; // $0", "=r", [], dtype=tl.int32, is_pure=False, pack=1)
    cols = tl.program_id(0) * COLS + tl.arange(0, COLS)
    total = tl.zeros([COLS], tl.float32)
    for p in range(P):
        total += tl.load(PART + p * N + cols, mask=cols < N, other=0.0)
    tl.store(OUT + cols, total, mask=cols < N)


def kernel(x):
    M, N = x.shape
    parts = min(16, triton.cdiv(M, 64))
    part = torch.empty((parts, N), device=x.device, dtype=torch.float32)
    out = torch.empty((N,), device=x.device, dtype=torch.float32)
    _partial[(parts, triton.cdiv(N, 64))](x, part, x.stride(0), M, N, ROWS=64, COLS=64, num_warps=4)
    _total[(triton.cdiv(N, 64),)](part, out, parts, N, COLS=64, num_warps=int("WARPS"), launch_pdl=True)
    return out
