"""A step with momentum, in place: p and exp_avg are changed and returned. Small and simple, for tests."""

import torch
import triton
import triton.language as tl


@triton.jit
def _momentum(P, G, M, n, lr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    g = tl.load(G + at, mask=inside, other=0.0)
    m = 0.9 * tl.load(M + at, mask=inside, other=0.0) + 0.1 * g
    p = tl.load(P + at, mask=inside, other=0.0)
    tl.store(M + at, m, mask=inside)
    tl.store(P + at, p - lr * m, mask=inside)


def step(p, g, m, lr):
    _momentum[(triton.cdiv(p.numel(), 1024),)](p, g, m, p.numel(), lr, BLOCK=1024)


def kernel(p, g, exp_avg, lr):
    step(p, g, exp_avg, lr)
    return p, exp_avg


def reference(p, g, exp_avg, lr):
    exp_avg.mul_(0.9).add_(g, alpha=0.1)
    return p.sub_(lr * exp_avg), exp_avg


def inputs(case, generator):
    def normal():
        return torch.randn(case["n"], generator=generator, device=generator.device)

    return {"p": normal(), "g": normal(), "exp_avg": normal(), "lr": 0.5}


IN_PLACE = ("p", "exp_avg")
CASES = {"large": dict(n=1 << 20)}
SMALL = {"even": dict(n=2048), "ragged": dict(n=1500)}
HELD_OUT = {"odd": dict(n=99_991)}


def flops(case):
    return 5 * case["n"]


def bytes_moved(case):
    return 20 * case["n"]
