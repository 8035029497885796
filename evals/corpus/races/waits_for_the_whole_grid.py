# does: all programs wait for each other, and more of them than a GPU holds at a time
# target: column_sum
# stage: synchronisation
import torch
import triton
import triton.language as tl


@triton.jit
def _column_sum(X, PART, COUNT, OUT, stride, M, N, ROWS: tl.constexpr, COLS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    inside = (rows < M)[:, None] & (cols < N)[None, :]
    x = tl.load(X + rows[:, None].to(tl.int64) * stride + cols[None, :], mask=inside, other=0.0)
    tl.store(PART + tl.program_id(0) * N + cols, tl.sum(x.to(tl.float32), 0), mask=cols < N)
    tl.debug_barrier()
    tl.atomic_add(COUNT, 1)
    while tl.atomic_add(COUNT, 0) < tl.num_programs(0) * tl.num_programs(1):
        pass
    if tl.program_id(0) == 0:
        total = tl.zeros([COLS], tl.float32)
        for i in range(tl.num_programs(0)):
            total += tl.load(PART + i * N + cols, mask=cols < N, other=0.0)
        tl.store(OUT + cols, total, mask=cols < N)


def kernel(x):
    M, N = x.shape
    programs = triton.cdiv(M, 64)
    out = torch.empty((N,), device=x.device, dtype=torch.float32)
    part = torch.empty((programs, N), device=x.device, dtype=torch.float32)
    count = torch.zeros((1,), device=x.device, dtype=torch.int32)
    _column_sum[(programs, triton.cdiv(N, 64))](x, part, count, out, x.stride(0), M, N, ROWS=64, COLS=64, num_warps=4)
    return out
