"""The test before a loop: where it fires, that it changes no bit, and that ptxas then leaves the loop alone."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pgo_agent.agent.moves.launch_sites import sites, with_configs
from pgo_agent.agent.moves.move import RewriteInput
from pgo_agent.agent.moves.rewrites import guarded_loop
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.isolation import box

from tests.agent.composing import checked, outputs, random, reason, same_bits, swiglu
from tests.conftest import ROOT
from tests.shared_builds import lend

H200 = devices.find("h200")
GEMM = ROOT / "kernels" / "gemm.py"
KERNEL = """
import triton, triton.language as tl
@triton.jit
def _sum(a, b, acc, lo, hi, STEP: tl.constexpr):
    # Adds up products.
    for i in range(lo, hi, STEP):  # in steps
        acc = tl.dot(tl.load(a + i), tl.load(b + i), acc)
    return acc
@triton.jit
def k(a, b, c, n, STEP: tl.constexpr):
    acc = tl.zeros([STEP, STEP], tl.float32)
    acc = _sum(a, b, acc, 0, n, STEP)
    tl.store(c, acc)
"""
LOOP = "for i in range(lo, hi, STEP):"


def rewritten(source: str, kernel: str = "k", static: Mapping[str, Any] | None = None) -> str:
    return guarded_loop.rewrite(RewriteInput(source, kernel, H200, {}, static or {}))


def test_the_loop_stands_behind_a_test_and_nothing_else_changes() -> None:
    old = "    for i in range(lo, hi, STEP):  # in steps\n        acc = tl"
    new = "    if lo != hi:\n        for i in range(lo, hi, STEP):  # in steps\n            acc = tl"
    assert rewritten(KERNEL) == KERNEL.replace(old, new)


@pytest.mark.parametrize(
    ("loop", "test"),
    [
        ("range(hi)", "if hi != 0:"),
        ("range(0, tl.cdiv(hi, STEP))", "if tl.cdiv(hi, STEP) != 0:"),
        ("tl.range(lo, hi, step=STEP, num_stages=3)", "if lo != hi:"),
        ("range(hi, lo, -STEP)", "if hi != lo:"),
        ("range(lo, hi if lo else STEP)", "if lo != (hi if lo else STEP):"),
    ],
)
def test_the_test_holds_whenever_the_loop_runs(loop: str, test: str) -> None:
    assert f"    {test}\n        for i in {loop}:" in rewritten(KERNEL.replace(LOOP, f"for i in {loop}:"))


def test_a_file_is_rewritten_once() -> None:
    assert "behind `if lo != hi:` already" in reason(rewritten, rewritten(KERNEL))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (LOOP, "for i in tl.static_range(lo, hi, STEP):", "unrolled"),
        (LOOP, "for i in range(0, STEP):", "ptxas knows how often"),
        (LOOP, "for i in range(0, 4 * STEP, 2):", "ptxas knows how often"),
        (LOOP, "mid: tl.constexpr = tl.cdiv(STEP, 2)\n    for i in range(mid, hi, STEP):", "mid, is a tl.constexpr"),
        (LOOP, "for i in tl.range(lo, hi, warp_specialize=True):", "asks for warp_specialize"),
        (LOOP, "for i in range(*lo, hi):", "not over a range"),
        (LOOP, "for i in range(lo, tl.load(a), STEP):", "computed twice: range(lo, tl.load(a), STEP)"),
        (LOOP, "for i in range(lo, tl.atomic_add(a, 1), STEP):", "computed twice"),
        (LOOP, "for i in hi:", "not over a range"),
        (LOOP, "for lo, i in range(lo, hi, STEP):", "not over a range"),
        ("    # Adds up products.", "    i = tl.load(a)", "i, is assigned elsewhere"),
        ("lo, hi, STEP: tl.constexpr):\n", "lo, hi, i, STEP: tl.constexpr):\n", "i, is assigned elsewhere"),
        ("acc = tl.dot(tl.load(a + i), tl.load(b + i), acc)", "acc += tl.load(a + i)", "no loop with a dot"),
        (LOOP, "while lo < hi:", "no loop with a dot"),
        (f"    {LOOP}  # in steps\n    ", f"    if hi > lo:\n     {LOOP}\n      ", "behind `if hi > lo:` already"),
    ],
)  # fmt: skip
def test_it_says_why_it_does_not_fire(old: str, new: str, why: str) -> None:
    assert old in KERNEL
    assert why in reason(rewritten, KERNEL.replace(old, new))


def test_only_the_loop_that_multiplies_gets_a_test() -> None:
    outer = KERNEL.replace(
        "    acc = _sum(a, b, acc, 0, n, STEP)", "    for t in range(n):\n        acc = _sum(a, b, acc, 0, t, STEP)"
    )
    found = rewritten(outer)
    assert "    for t in range(n):\n        acc = _sum" in found
    assert "if lo != hi:" in found


def test_a_loop_around_a_helper_that_multiplies_without_a_loop_gets_a_test() -> None:
    flat = KERNEL.replace(f"    {LOOP}  # in steps\n    ", "    i = lo\n").replace(
        "    acc = _sum(a, b, acc, 0, n, STEP)", "    for t in range(n):\n        acc = _sum(a, b, acc, t, n, STEP)"
    )
    assert "    if n != 0:\n        for t in range(n):\n            acc = _sum" in rewritten(flat)


@pytest.mark.parametrize(
    ("notes", "why"),
    [
        ([], "ptxas does not serialize its tensor instructions"),
        (["C7511"], "for another reason: C7511"),
        (["C7517", "C7519"], "ptxas does not serialize its tensor instructions"),
    ],
)
def test_a_known_profile_without_the_note_is_a_reason_not_to_fire(notes: list[str], why: str) -> None:
    assert why in reason(rewritten, KERNEL, static={"notes": notes})


def test_a_known_profile_with_the_note_is_what_it_is_for() -> None:
    assert "if lo != hi:" in rewritten(KERNEL, static={"notes": ["C7515"]})


@pytest.mark.slow
def test_a_matrix_product_keeps_its_bits_on_even_ragged_and_empty_sizes() -> None:
    sizes = [(256, 128, 256), (65, 97, 270), (1, 40, 300), (200, 0, 33)]
    calls = [{"a": random(m, k), "b": random(k, n)} for m, k, n in sizes]
    source = GEMM.read_text()
    assert same_bits(outputs(source, *calls), outputs(rewritten(source, "_gemm"), *calls))


def test_a_kernel_of_a_package_that_it_has_never_seen_keeps_its_bits() -> None:
    source = swiglu()
    changed = rewritten(source, "_swiglu_kernel_forward")
    assert changed.count("    if dim != 0:\n        for k in range(0, dim, BLOCK_K):") == 1
    sizes = [(2, 64, 64, 128), (1, 100, 72, 136)]
    calls = [{"x": random(b, s, d), "gate": random(w, d), "up": random(w, d + 8)[:, :d]} for b, s, d, w in sizes]
    assert same_bits(outputs(source, *calls), outputs(changed, *calls))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gemm", "fa_bwd"])
def test_a_rewritten_kernel_is_right_on_all_small_cases(name: str) -> None:
    path = ROOT / "kernels" / f"{name}.py"
    found = checked(path, rewritten(path.read_text(), f"_{name}"))
    assert found.verdict == Verdict.CHECKED, found.reason


@pytest.mark.slow
def test_ptxas_serializes_the_product_before_and_not_behind_the_test(tmp_path: Path) -> None:
    source = GEMM.read_text()
    config = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8, "num_warps": 8, "num_stages": 3}
    builder = Builder(target.read(GEMM), H200, box.choose(), ContentStore(lend(tmp_path)))
    profiles = []
    for text in (source, rewritten(source, "_gemm")):
        built = builder.build(with_configs(text, sites(text)[0], [config]), {"CASES": ["4k-bt-bf16"]}, 1)
        assert built.ok, built.failures
        profiles += built.statics.values()
    before, after = profiles
    assert (before["notes"], after["notes"]) == (["C7515"], [])
    assert (before["sass"]["HGMMA"], after["sass"]["HGMMA"]) == (4, 4)
    assert before["sass"]["WARPGROUP"] == 2 * 4  # an arrive and a wait for each of them
    assert after["sass"]["WARPGROUP"] < 4
    assert before["shared"] == after["shared"]
