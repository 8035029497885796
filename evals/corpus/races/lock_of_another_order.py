# does: takes or gives back a lock by an atomic that does not order what it protects
# target: column_sum
# stage: synchronisation
# vary TAKEN: relaxed | acquire
# vary GIVEN: relaxed
import torch
import triton
import triton.language as tl


@triton.jit
def _column_sum(X, LOCK, OUT, stride, M, N, ROWS: tl.constexpr, COLS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    inside = (rows < M)[:, None] & (cols < N)[None, :]
    x = tl.load(X + rows[:, None].to(tl.int64) * stride + cols[None, :], mask=inside, other=0.0)
    total = tl.sum(x.to(tl.float32), 0)
    while tl.atomic_cas(LOCK + tl.program_id(1), 0, 1, sem="TAKEN") == 1:
        pass
    before = tl.load(OUT + cols, mask=cols < N, other=0.0)
    tl.store(OUT + cols, before + total, mask=cols < N)
    tl.debug_barrier()
    tl.atomic_xchg(LOCK + tl.program_id(1), 0, sem="GIVEN")


def kernel(x):
    M, N = x.shape
    out = torch.zeros((N,), device=x.device, dtype=torch.float32)
    lock = torch.zeros((triton.cdiv(N, 64),), device=x.device, dtype=torch.int32)
    grid = (triton.cdiv(M, 64), triton.cdiv(N, 64))
    _column_sum[grid](x, lock, out, x.stride(0), M, N, ROWS=64, COLS=64, num_warps=4)
    return out
