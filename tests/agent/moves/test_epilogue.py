"""Two stores of half a tile: where the move fires, that it changes no bit, and what it does to shared memory."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pgo_agent.agent.moves import epilogue
from pgo_agent.agent.moves.analysis import DoesNotApply
from pgo_agent.agent.moves.launch_sites import sites, with_configs
from pgo_agent.agent.moves.move import Subject
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.build.result import Built
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.isolation import box

from tests.agent.composing import HEADER, checked, compose, outputs, random, reason, same_bits
from tests.conftest import ROOT

H200 = devices.find("h200")
GEMM = (ROOT / "kernels" / "gemm.py").read_text()
CONTRACT = (
    GEMM[GEMM.index("def reference") : GEMM.index("CASES = {")]
    + """
CASES = {"4k": dict(M=4096, N=4096, K=4096, transposed=True, dtype="float16")}
SMALL = {
    "even": dict(M=256, N=256, K=64, transposed=True, dtype="float16"),
    "ragged": dict(M=70, N=200, K=40, transposed=True, dtype="float16"),
}
HELD_OUT = {}


def flops(case):
    return 1


def bytes_moved(case):
    return 1
"""
)
MADE = "tl.make_tensor_descriptor(c, shape=[M, N], strides=[N, 1], block_shape=[TALL, WIDE])"
STORE = "out.store([row, column], done)  # the whole tile"
KERNEL = (
    HEADER
    + f"""

@triton.autotune(configs=[triton.Config(dict(TALL=64, WIDE=64, DEEP=32), num_stages=3)], key=["M"])
@triton.jit
def _tiles(a, b, c, bias, M, N, K, PROGRAMS: tl.constexpr, TALL: tl.constexpr, WIDE: tl.constexpr, DEEP: tl.constexpr):
    left = tl.make_tensor_descriptor(a, [M, K], [K, 1], [TALL, DEEP])
    right = tl.make_tensor_descriptor(b, [N, K], [K, 1], [WIDE, DEEP])
    out = {MADE}
    across = tl.cdiv(N, WIDE)
    for tile in range(tl.program_id(0), tl.cdiv(M, TALL) * across, PROGRAMS):
        row = tile // across * TALL
        column = tile % across * WIDE
        total = tl.zeros([TALL, WIDE], tl.float32)
        for k in range(0, K, DEEP):
            total = tl.dot(left.load([row, k]), right.load([column, k]).T, total)
        at = column + tl.arange(0, WIDE)
        done = (total + tl.load(bias + at, mask=at < N, other=0.0)[None, :]).to(out.dtype)
        # In one piece.
        {STORE}


def kernel(a, b):
    M, K, N = *a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    bias = torch.zeros(N, device=a.device)
    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    _tiles[(4,)](a, b.T, c, bias, M, N, K, PROGRAMS=4)
    return c
"""
)


def rewritten(source: str, config: Mapping[str, int] | None = None, static: Mapping[str, Any] | None = None) -> str:
    return epilogue.rewrite(Subject(source, "_tiles", H200, dict(config or {}), static or {}))


def test_the_tile_is_stored_in_two_halves_and_nothing_else_changes() -> None:
    halves = """done_halves = tl.reshape(done, [TALL, 2, WIDE // 2])
        done_left, done_right = tl.split(tl.permute(done_halves, (0, 2, 1)))
        out.store([row, column], done_left)
        out.store([row, column + WIDE // 2], done_right)  # the whole tile"""
    narrow = MADE.replace("[TALL, WIDE]", "[TALL, WIDE // 2]")
    assert rewritten(KERNEL) == KERNEL.replace(STORE, halves).replace(MADE, narrow)


def test_a_value_without_a_name_a_width_in_digits_and_a_column_in_brackets() -> None:
    source = KERNEL.replace("[TALL, WIDE])", "[TALL, 64])").replace(
        STORE, "out.store((row, column & -8), (total * 2).to(out.dtype))"
    )
    found = rewritten(source)
    assert "block_shape=[TALL, 32])" in found
    assert "out_halves = tl.reshape((total * 2).to(out.dtype), [TALL, 2, 32])" in found
    assert "out.store([row, (column & -8) + 32], out_right)" in found


def test_a_column_that_a_choice_decides_is_moved_as_a_whole() -> None:
    found = rewritten(KERNEL.replace(STORE, "out.store([row, column if K > 9 else 0], done)"))
    assert "out.store([row, (column if K > 9 else 0) + WIDE // 2], done_right)" in found


def test_names_that_the_kernel_has_are_left_alone() -> None:
    assert "done_left_1, done_right = " in rewritten(KERNEL.replace("across", "done_left"))


def test_every_store_through_the_descriptor_is_halved() -> None:
    found = rewritten(KERNEL.replace(STORE, f"{STORE}\n        out.store([row + TALL, column], done + 1)"))
    assert found.count("out.store(") == 4


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (MADE, f"{MADE}\n    if K > 9:\n        out = {MADE}", "made in more than one place"),
        ("[TALL, WIDE])\n    across", "[WIDE])\n    across", "not two-dimensional"),
        ("[TALL, WIDE])\n    across", "[1, TALL, WIDE])\n    across", "not two-dimensional"),
        ("[TALL, WIDE])\n    across", "block)\n    across", "not two-dimensional"),
        ("[TALL, WIDE])\n    across", "[TALL, WIDE // 2])\n    across", "not one constant: WIDE // 2"),
        ("[TALL, WIDE])\n    across", "[TALL, N])\n    across", "not one constant: N"),
        ("[TALL, WIDE])\n    across", "[TALL, 16])\n    across", "16 columns wide"),
        (STORE, "out.atomic_add([row, column], done)\n        out.store([row, column], done)", "for more than stores"),
        (STORE, "tl.store(c, out.load([row, column]))\n        out.store([row, column], done)", "for more than stores"),
        (STORE, "_helper(out)\n        out.store([row, column], done)", "for more than stores"),
        (STORE, "if row: out.store([row, column], done)", "for more than stores"),
        (STORE, "out.store(place, done)", "not a list of row and column"),
        (STORE, "out.store([row, column + tl.load(c)], done)", "may change when it is computed twice"),
        (STORE, "tl.store(c + row, done)", "it stores through pointers"),
        (f"        # In one piece.\n        {STORE}", f"    {STORE}", "outside of loops"),
        ("for tile in range(", "for tile in tl.static_range(", "outside of loops"),
        (f"    out = {MADE}\n", "", "it stores through pointers"),
        ("c, bias, M", "out, bias, M", "made in more than one place"),
    ],
)  # fmt: skip
def test_it_says_why_it_does_not_fire(old: str, new: str, why: str) -> None:
    assert old in KERNEL
    assert why in reason(rewritten, KERNEL.replace(old, new))


def test_a_descriptor_of_the_launcher_is_not_touched() -> None:
    source = KERNEL.replace(f"    out = {MADE}\n", "").replace("def _tiles(a, b, c,", "def _tiles(a, b, out,")
    assert "the launcher makes the descriptor out" in reason(rewritten, source)


def test_a_file_is_rewritten_once() -> None:
    assert "not one constant: WIDE // 2" in reason(rewritten, rewritten(KERNEL))


def test_a_tile_of_the_best_configuration_that_is_too_narrow_is_left_alone() -> None:
    assert "16 columns wide" in reason(rewritten, KERNEL, {"WIDE": 16})


def test_shared_memory_that_another_stage_fits_into_is_a_reason_not_to_fire() -> None:
    config = {"WIDE": 256, "num_stages": 3}
    assert "one more stage fits as it is: 150000 of 232448 B" in reason(rewritten, KERNEL, config, {"shared": 150000})
    assert "done_left" in rewritten(KERNEL, config, {"shared": 213016})


@pytest.mark.parametrize("kernel", ["_gemm", "_fa_bwd", "_fa_fwd"])
def test_stores_through_pointers_are_left_alone(kernel: str) -> None:
    source = (ROOT / "kernels" / f"{kernel[1:]}.py").read_text()
    with pytest.raises(DoesNotApply, match="it stores through pointers"):
        epilogue.rewrite(Subject(source, kernel, H200))


def test_the_bits_stay_on_even_ragged_and_empty_sizes() -> None:
    sizes = [(256, 128, 64), (77, 200, 40), (1, 8, 8), (64, 96, 0)]
    calls = [{"a": random(m, k), "b": random(n, k).T} for m, n, k in sizes]
    assert same_bits(outputs(KERNEL, *calls), outputs(rewritten(KERNEL), *calls))


def test_the_rewritten_kernel_is_right_on_all_small_cases(tmp_path: Path) -> None:
    path = compose(tmp_path, KERNEL, CONTRACT)
    found = checked(path, rewritten(path.read_text()))
    assert found.verdict == Verdict.CHECKED, found.reason


@pytest.mark.slow
def test_a_stage_more_fits_on_an_h200(tmp_path: Path) -> None:
    wide = target.read(compose(tmp_path, KERNEL, CONTRACT))
    builder = Builder(wide, H200, box.choose(), ContentStore(tmp_path / "shelf"))

    def built(source: str) -> Built:
        config = {"TALL": 128, "WIDE": 256, "DEEP": 64, "num_warps": 8, "num_stages": 4}
        return builder.build(with_configs(source, sites(source)[0], [config]), {"CASES": None}, 1)

    before, after = built(wide.source), built(rewritten(wide.source))
    assert "out of shared memory: 262176 bytes" in before.failures[0].message
    assert [(s["shared"], s["pipeline_depth"]) for s in after.statics.values()] == [(229408, 4)], after.failures
