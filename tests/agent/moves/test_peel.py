"""Peeling: the first iteration stands before the loop, and every iteration keeps its bits."""

import ast

import pytest
import torch
from pgo_agent.agent.moves import peel
from pgo_agent.agent.moves.move import Subject
from pgo_agent.sandbox import devices

from tests.agent.composing import HEADER, outputs, random, reason, same_bits, swiglu
from tests.conftest import ROOT

H200 = devices.find("h200")
MATMUL = f"""{HEADER}

@triton.jit
def _matmul(A, B, C, K, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    acc = tl.zeros([BLOCK, BLOCK], tl.float32)
    # over the inner dimension
    for k in range(0, K, BLOCK):
        inside = k + at < K
        a = tl.load(A + at[:, None] * K + (k + at)[None, :], mask=inside[None, :], other=0.0)
        b = tl.load(B + (k + at)[:, None] * BLOCK + at[None, :], mask=inside[:, None], other=0.0)
        acc = tl.dot(a, b, acc)
    tl.store(C + at[:, None] * BLOCK + at[None, :], acc)


def kernel(a, b):
    c = torch.empty((16, 16))
    _matmul[(1,)](a, b, c, a.shape[1], BLOCK=16)
    return c
"""


def rewritten(source: str, kernel: str = "_matmul", notes: tuple[str, ...] = ("C7515",)) -> str:
    return peel.rewrite(Subject(source, kernel, H200, {}, {"notes": notes}))


def test_the_first_iteration_stands_before_the_loop_behind_a_test_that_there_is_one() -> None:
    text = rewritten(MATMUL)
    assert "    # over the inner dimension\n    if 0 < K:\n        k = 0\n        inside = k + at < K\n" in text
    assert "        for k in range(BLOCK, K, BLOCK):\n            inside" in text


@pytest.mark.parametrize(
    ("loop", "rest"),
    [
        (
            "tl.range(\n        0,\n        K,  # all\n        BLOCK,\n        num_stages=3,\n        "
            "disable_licm=K  # no\n    )",
            "tl.range(\n        BLOCK, K, BLOCK,\n        num_stages=3,\n        disable_licm=K  # no\n    )",
        ),
        ("tl.range(0, K, step=BLOCK, num_stages=2)", "tl.range(BLOCK, K, step=BLOCK, num_stages=2)"),
        ("range(K & 7 if BLOCK else 0, K, BLOCK)", "range((K & 7 if BLOCK else 0) + BLOCK, K, BLOCK)"),
    ],
)
def test_the_rest_of_the_loop_keeps_the_form_of_its_range(loop: str, rest: str) -> None:
    text = rewritten(MATMUL.replace("range(0, K, BLOCK)", loop))
    ast.parse(text)
    assert " ".join(f"for k in {rest}: inside".split()) in " ".join(text.split())


def test_every_length_of_the_loop_keeps_its_bits_none_included() -> None:
    calls = [{"a": torch.randn(16, k), "b": torch.randn(k, 16)} for k in (1, 16, 17, 100)]
    calls.append({"a": torch.empty(16, 0), "b": torch.empty(0, 16)})
    assert same_bits(outputs(MATMUL, *calls), outputs(rewritten(MATMUL), *calls))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("range(0, K, BLOCK)", "range(0, K, K)", "not known to be positive"),
        ("range(0, K, BLOCK)", "range(0, BLOCK, 16)", "knows how often its loop runs"),
        ("        inside = k", "        for j in range(2):\n            acc += j\n        inside = k", "another loop"),
        ("        inside = k + at", "        inside = k.to(tl.int64) + at", "a method of its loop's variable"),
        ("        inside = k", "        K = K - 1\n        inside = k", "its loop changes K"),
        ("    acc = tl.zeros", "    k = 1\n    acc = tl.zeros", "assigned elsewhere"),
        ("tl.dot(a, b, acc)", "acc + tl.sum(a) + tl.sum(b)", "no loop with a dot"),
    ],
)  # fmt: skip
def test_it_does_not_fire_where_the_first_iteration_cannot_stand_alone(old: str, new: str, why: str) -> None:
    assert old in MATMUL
    assert why in reason(rewritten, MATMUL.replace(old, new))


def test_it_asks_for_its_symptom() -> None:
    assert "does not serialize" in reason(rewritten, MATMUL, notes=())
    assert "another reason: C7511" in reason(rewritten, MATMUL, notes=("C7511",))


def test_shipped_gemm_is_peeled() -> None:
    assert "k = 0\n" in rewritten((ROOT / "kernels" / "gemm.py").read_text(), "_gemm")


def test_a_kernel_that_it_has_never_seen_keeps_its_bits() -> None:
    source = swiglu()
    calls = [{"x": random(1, 100, 72), "gate": random(136, 72), "up": random(136, 80)[:, :72]}]
    changed = rewritten(source, "_swiglu_kernel_forward")
    assert "        if 0 < dim:\n" in changed or "    if 0 < dim:\n" in changed
    assert same_bits(outputs(source, *calls), outputs(changed, *calls))
