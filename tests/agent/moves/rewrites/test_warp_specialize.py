"""Warp specialization: it is asked for where Triton does it, on loops that read through descriptors only."""

import ast
import re

import pytest
from pgo_agent.agent.moves.analysis import DoesNotApply
from pgo_agent.agent.moves.move import RewriteInput
from pgo_agent.agent.moves.rewrites import tma_descriptors, warp_specialize
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.ttgir import reader
from pgo_agent.sandbox.ttgir.pseudocode.view import readable

from tests.agent.composing import reason
from tests.conftest import FA_FWD, ROOT

H200 = devices.find("h200")
KERNEL = """
import triton
import triton.language as tl


@triton.jit
def helper(x, p):
    return x + tl.load(p)


@triton.jit
def k(A, B, C, N, K, FLAG: tl.constexpr, BK: tl.constexpr):
    a_desc = tl.make_tensor_descriptor(A, shape=[N, K], strides=[K, 1], block_shape=[64, BK])
    b_desc = tl.make_tensor_descriptor(B, shape=[N, K], strides=[K, 1], block_shape=[64, BK])
    offs = tl.arange(0, 64)
    acc = tl.zeros([64, 64], tl.float32)
    for i in range(0, K, BK):
        a = a_desc.load([0, i])
        b = b_desc.load([0, i])
        acc = tl.dot(a, tl.trans(b), acc)
    tl.store(C + offs[:, None] * 64 + offs[None, :], acc)
"""
LOOP = "    for i in range(0, K, BK):\n"
INSIDE = KERNEL[KERNEL.index("        a = a_desc") : KERNEL.index("    tl.store(")]
WHOLE = LOOP + INSIDE
DOT = "        acc = tl.dot("
CHOICE = "        if K > i:\n            a = a * 2\n        else:\n            a = a * 3\n"


def rewritten(*changes: tuple[str, str]) -> str:
    source = KERNEL
    for old, new in changes:
        assert old in source, old
        source = source.replace(old, new)
    ast.parse(source)
    found = warp_specialize.rewrite(RewriteInput(source, "k", H200))
    ast.parse(found)
    return found


def deeper(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


@pytest.mark.parametrize(
    ("old", "new", "asked"),
    [
        (LOOP, LOOP, "tl.range(0, K, BK, warp_specialize=True)"),
        (LOOP, "    for i in tl.range(K, num_stages=2):\n", "tl.range(K, num_stages=2, warp_specialize=True)"),
        (LOOP, "    for i in range(\n        0,\n        K,\n        BK,  # deep\n    ):\n",
         "tl.range(0, K, BK, warp_specialize=True)"),
        (LOOP, "    for i in range(\n        0,\n        K,\n        BK  # deep\n    ):\n",
         "tl.range(0, K, BK, warp_specialize=True)"),
        (LOOP, "    for i in tl.range(0, K, step=BK):\n", "tl.range(0, K, step=BK, warp_specialize=True)"),
        (DOT, "        if K > i:\n            acc += 1.0\n" + DOT, "warp_specialize=True"),
        (DOT, CHOICE.replace("K > i", "FLAG") + DOT, "warp_specialize=True"),
        (WHOLE, f"    if FLAG:\n{deeper(WHOLE)}    else:\n{deeper(WHOLE)}", "warp_specialize=True"),
    ],
)  # fmt: skip
def test_a_loop_that_reads_through_descriptors_asks_for_it(old: str, new: str, asked: str) -> None:
    assert asked in rewritten((old, new))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (DOT, "        b += tl.load(C + i)\n" + DOT, "not go through a descriptor"),
        (DOT, "        b = helper(b, C + i)\n" + DOT, "not go through a descriptor"),
        (INSIDE, "        acc = tl.dot(acc, acc)\n", "not go through a descriptor"),
        ("a_desc = tl.make_tensor_descriptor(A", "a_desc = other(A", "not go through a descriptor"),
        (LOOP, "    if K > 3:\n        a_desc = b_desc\n" + LOOP, "not go through a descriptor"),
        (LOOP, "    for i in tl.static_range(0, 64, BK):\n", "not over a range"),
        (LOOP, "    for i in other(K):\n", "not over a range"),
        (DOT, CHOICE + DOT, "run-time `else`"),
        (DOT, CHOICE.replace("else:", "elif FLAG:") + DOT, "run-time `else`"),
        (DOT, "        a = a * 2 if K > i else a\n" + DOT, "run-time `else`"),
        (DOT, "        FLAG = i > 3\n        a = a * 2 if FLAG else a\n" + DOT, "run-time `else`"),
        (DOT, "        for j in range(0, 2):\n    " + DOT, "a loop around a loop"),
        (DOT, "        while i < 2:\n            i += 1\n" + DOT, "a loop around a loop"),
        (WHOLE, WHOLE + WHOLE, "another loop with a dot may run"),
        (WHOLE, f"    if K > 3:\n{deeper(WHOLE)}", "another loop with a dot may run"),
        (WHOLE, f"    if FLAG:\n{deeper(WHOLE)}    if BK > 3:\n{deeper(WHOLE)}", "another loop with a dot may run"),
        (WHOLE, WHOLE + "    while K > 3:\n        acc = tl.dot(acc, acc)\n", "another loop with a dot may run"),
        ("return x + tl.load(p)", "return tl.dot(x, x)", "helper functions"),
        (WHOLE, "", "no loop with a dot"),
        ("K, BK):", "K, BK):  # warp_specialize", "specialized already"),
        ("import triton.language as tl\n", "tl = triton.language\n", "does not import triton.language"),
    ],
)  # fmt: skip
def test_it_does_not_apply_and_says_why(old: str, new: str, why: str) -> None:
    call = () if "helper functions" not in why else ((DOT, "        b = helper(b, C)\n" + DOT),)
    assert why in reason(rewritten, (old, new), *call)


@pytest.mark.parametrize("name", ["fa_fwd", "gemm", "fa_bwd"])
def test_a_kernel_with_pointer_loads_is_not_asked(name: str) -> None:
    with pytest.raises(DoesNotApply):
        warp_specialize.rewrite(RewriteInput((ROOT / "kernels" / f"{name}.py").read_text(), f"_{name}", H200))


@pytest.fixture(scope="module")
def specialized(tmp_path_factory: pytest.TempPathFactory) -> tuple[Builder, str]:
    """Attention with descriptors, specialized, and what builds it."""
    kernel = target.read(FA_FWD)
    source = tma_descriptors.rewrite(RewriteInput(kernel.source, "_fa_fwd", H200)).replace("num_warps=8", "num_warps=4")
    builder = Builder(kernel, H200, box.choose(), ContentStore(tmp_path_factory.mktemp("specialized")))
    return builder, warp_specialize.rewrite(RewriteInput(source, "_fa_fwd", H200))


def ttgir(builder: Builder, source: str) -> str:
    """The TTGIR of its kernel, as pseudo-code."""
    built = builder.build(source, {"CASES": ["d64-4k"]}, 1)
    (kernel,) = builder.contents.manifest(built.bundle)["kernels"].values()
    return readable(reader.parse(builder.contents.get(kernel["files"]["ttgir"], "ttgir").decode())).text()


@pytest.mark.slow
def test_attention_with_descriptors_is_compiled_for_separate_warps(specialized: tuple[Builder, str]) -> None:
    builder, source = specialized
    built = builder.build(source, {"CASES": ["d64-4k"]}, 1)
    assert built.ok, built.failures
    (static,) = built.statics.values()
    assert static["warp_specialized"]
    assert static["sass"]["UTMALDG"] > 0
    assert "LDGSTS" not in static["sass"]


@pytest.mark.slow
def test_the_second_group_of_warps_stores_the_rows_that_it_loaded(specialized: tuple[Builder, str]) -> None:
    """Triton adds 64 to Q's coordinate for it. Where the rows were made of the same value, it added 64 to them, too."""
    builder, source = specialized
    shared = re.sub(r"tl\.maximum\((.+?), -21474836\d\d\)", r"\1", source)
    assert shared != source
    assert "+ 64 + arange(64, 128)" in ttgir(builder, shared)
    text = ttgir(builder, source)
    assert "arange(64, 128)" in text and "+ 64 + arange(64, 128)" not in text


def test_what_counts_a_loop_and_what_is_known_at_compile_time_stay_as_they_are() -> None:
    found = rewritten(
        ("a_desc.load([0, i])", "a_desc.load([N * BK, i])"), ("b_desc.load([0, i])", "b_desc.load([BK, i])")
    )
    assert "a_desc.load([tl.maximum(N * BK, -2147483647), i])" in found
    assert "b_desc.load([BK, i])" in found
