"""Rows that TMA cannot read are copied to ones that it can: the same values, found by the same strides, or no rewrite.

Inputs are small whole numbers: their sums are exact in any order.
"""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from pgo_agent.agent.moves import Best, Proposal, Skipped, catalogue
from pgo_agent.agent.moves.move import RewriteInput
from pgo_agent.agent.moves.rewrites import aligned_copy
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.isolation import box

from tests.agent.composing import HEADER, checked, outputs, reason, same_bits, taken
from tests.agent.unalignable import LAUNCH, MADE, REFUSED, moved
from tests.conftest import ROOT
from tests.shared_builds import lend

H200 = devices.find("h200")
GEMM = ROOT / "kernels" / "gemm.py"
TAKEN = """

_fits, _answers, _kernel = _descriptor_fits, [], kernel


def _descriptor_fits(*given):
    _answers.append(_fits(*given))
    return _answers[-1]


def kernel(**given):
    _answers.clear()
    return _kernel(**given), torch.tensor([float(all(_answers))])
"""
ROWS = """

def kernel(x):
    y = _rows_aligned(x)
    return y, torch.tensor([y is x, y.data_ptr() % 16, *y.stride()], dtype=torch.int64)
"""


def rewritten(*changes: tuple[str, str], statics: tuple[dict[str, Any], ...] = ()) -> str:
    source = GEMM.read_text()
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    return aligned_copy.rewrite(RewriteInput(source, "_gemm", H200, statics=statics))


@cache
def plain() -> str:
    """The kernel as it is shipped, rewritten."""
    return rewritten()


def numbers(rows: int, columns: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    drawn = torch.randint(-4, 5, (rows, columns), generator=torch.Generator().manual_seed(rows + columns))
    return drawn.to(dtype)


def operands(rows: int, inner: int, columns: int) -> list[dict[str, torch.Tensor]]:
    """A product in both layouts of both operands, and of views that start anywhere."""
    a, b, memory = numbers(rows, inner), numbers(inner, columns), numbers(300, 300)
    turned = dict(a=numbers(inner, rows).T, b=numbers(columns, inner).T)
    return [
        dict(a=a, b=b),
        turned,
        dict(a=memory[3 : 3 + rows, 1 : 1 + inner], b=memory[5 : 5 + inner, 7 : 7 + columns]),
    ]


# values ---------------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_product_of_any_rows_is_the_same_and_goes_through_descriptors() -> None:
    calls = [*operands(65, 97, 83), *operands(64, 96, 128), *operands(1, 33, 9)]
    before, after = outputs(GEMM.read_text(), *calls), outputs(plain() + TAKEN, *calls)
    assert same_bits(before, [found[:1] for found in after])
    took = [bool(found[1].item()) for found in after]
    assert took == [True, True, False] * 3, "views are left to the loads, all else goes through descriptors"


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int8])
def test_rows_are_copied_where_they_must_be_and_only_there(dtype: torch.dtype) -> None:
    helpers = plain().partition("@triton.jit(do_not_specialize")
    file = HEADER + "".join(helpers[1:]).partition("@triton.autotune")[0] + ROWS
    memory, step = numbers(70, 96, dtype), 16 // dtype.itemsize
    views = {
        "aligned": memory,
        "some columns": memory[:, :5],
        "from a column on": memory[:, 1:60],
        "odd": numbers(9, 1031, dtype),
        "turned": memory.T,
        "turned and odd": numbers(9, 7, dtype).T,
        "one row": memory[3:4, 2:9],
        "one column": memory[:, 4:5],
        "every other column": memory[:, ::2],
        "none": memory[:0, :7],
        "a vector": memory[0],
        "three dimensions": memory[None],
    }
    found = dict(zip(views, outputs(file, *(dict(x=x) for x in views.values())), strict=True))
    for name, (y, (same, start, *strides)) in found.items():
        x = views[name]
        assert torch.equal(x, y), name
        outer = [s for s in strides if s != 1] or [1]
        assert same or (start == 0 and outer[0] % step == 0), (name, strides)
    assert {name for name in views if not found[name][1][0]} == {"odd", "turned and odd"}


def test_what_lies_behind_a_row_is_a_number_for_kernels_that_mask_one_operand_alone() -> None:
    masked = ("a = tl.load(a_ptrs, mask=in_m & in_k[None, :], other=0.0)", "a = tl.load(a_ptrs, mask=in_m, other=0.0)")
    call = dict(a=numbers(80, 97)[:64], b=numbers(97, 83))  # what lies behind the last row is still of its storage
    found = [product[:-1] for source in (GEMM.read_text(), rewritten(masked)) for (product,) in outputs(source, call)]
    assert torch.equal(*found)  # the last row's end is no part of a, and never was


@pytest.mark.slow
def test_the_rewritten_kernel_is_right_on_all_small_cases() -> None:
    found = checked(GEMM, plain())
    assert found.verdict == Verdict.CHECKED, found.reason


def test_a_kernel_that_the_move_has_never_seen_computes_the_same() -> None:
    source = (
        taken("liger_kernel.ops.mhc", "_mhc_mm_norm_fwd_kernel")
        + """

def kernel(x, phi):
    x = x.to(torch.float16)
    N, K, M = *x.shape, phi.shape[1]
    mix = torch.empty((N, M), device=x.device, dtype=torch.float32)
    inverse = torch.empty_like(x[:, 0], dtype=torch.float32)
    _mhc_mm_norm_fwd_kernel[(triton.cdiv(N, 16), triton.cdiv(M, 16))](
        x, phi, mix, inverse, N, K, M, *x.stride(), *phi.stride(), *mix.stride(), eps=1e-6,
        BLOCK_N=16, BLOCK_K=32, BLOCK_M=16, CAST_FP32=False,
    )
    return mix, inverse
"""
    )
    why = reason(aligned_copy.rewrite, RewriteInput(source, "_mhc_mm_norm_fwd_kernel", H200))
    assert why == "something else of the launcher may hang on where x lies"
    source = source.replace("torch.empty_like(x[:, 0], dtype=torch.float32)", "torch.empty(N, dtype=torch.float32)")
    changed = aligned_copy.rewrite(RewriteInput(source, "_mhc_mm_norm_fwd_kernel", H200))
    calls = [dict(x=numbers(40, 97), phi=numbers(97, 23)), dict(x=numbers(97, 40).T, phi=numbers(23, 97).T)]
    assert same_bits(outputs(source, *calls), outputs(changed, *calls))


# builds ---------------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_loads_of_odd_rows_become_copies_that_run_ahead(tmp_path: Path) -> None:
    gemm, contents = target.read(GEMM), ContentStore(lend(tmp_path))
    made: dict[str, list[dict[str, Any]]] = {}
    for name, source in (("shipped", gemm.source), ("rewritten", plain())):
        built = Builder(gemm, H200, box.choose(), contents).build(source, {"CASES": ["ragged"]}, 1)
        assert built.ok, built.failures
        made[name] = [built.statics[k] for k in built.choices["CASES/ragged"][0].kernels]
    (slow,) = made["shipped"]
    *copies, fast = made["rewritten"]
    assert not slow["async_copies"] and fast["async_copies"] and fast["sass"]["UTMALDG"]
    assert len(copies) in (1, 2) and not any(c["spill_store_bytes"] or c["dots"] for c in copies)


# what it does not do --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", REFUSED)
def test_nothing_is_rewritten_where_it_may_not_mean_the_same(form: str) -> None:
    why, changes = REFUSED[form]
    assert why in reason(rewritten, *changes)


def test_a_launcher_may_make_its_tensor_contiguous_and_refuse_others_before() -> None:
    before = (
        "    a = a.contiguous()\n    assert a.is_contiguous(), a.stride()\n    d = torch.empty_like(b)\n"
        "    if b.stride(1) != 1:\n        raise ValueError(b.stride())\n"
    )
    text = rewritten(*moved(before + LAUNCH))
    assert text.index("a = a.contiguous()") < text.index(
        "    a = _rows_aligned(a)\n    b = _rows_aligned(b)\n    _gemm["
    )


@pytest.mark.parametrize("made", ["a.new_empty((M, N))", "torch.zeros((M, N), device=a.device, dtype=a.dtype)"])
def test_a_launcher_may_make_its_result_in_many_ways(made: str) -> None:
    assert "a = _rows_aligned(a)" in rewritten((MADE, f"    c = {made}\n"))


def test_a_kernel_may_be_told_that_strides_are_not_negative() -> None:
    told = "    tl.assume(stride_am >= 0)\n    tl.assume(stride_bk > 0)\n    tiles_m ="
    assert "a = _rows_aligned(a)" in rewritten(("    tiles_m =", told))


def test_rows_are_left_alone_where_copies_run_ahead_in_every_case() -> None:
    ahead, waits = {"dots": 1, "async_copies": 4}, {"dots": 1, "async_copies": 0}
    assert "rows are aligned" in reason(rewritten, statics=(ahead, ahead))
    assert "_rows_aligned" in rewritten(statics=(ahead, waits))


def test_one_case_that_waits_is_enough_though_others_run_the_same_configuration() -> None:
    config = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8, "num_warps": 4, "num_stages": 4}
    rest = {"registers": 128, "spill_store_bytes": 0, "notes": [], "pipeline_depth": 4, "dots": 1, "sass": {}}
    ahead, waits = (rest | {"async_copies": n, "shared": 1024} for n in (4, 0))
    best = {c: Best(config, s, {"_gemm": s}) for c, s in (("CASES/8k", ahead), ("CASES/ragged", waits))}
    made = {m.move: m for m in catalogue.propose(GEMM.read_text(), best, [], H200)}
    assert isinstance(made[aligned_copy.MOVE.name], Proposal)
    del best["CASES/ragged"]
    made = {m.move: m for m in catalogue.propose(GEMM.read_text(), best, [], H200)}
    assert isinstance(made[aligned_copy.MOVE.name], Skipped)
