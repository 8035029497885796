"""Rows that TMA cannot read are copied to ones that it can: the same values, found by the same strides, or no rewrite.

Inputs are small whole numbers: their sums are exact in any order.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from pgo_agent.agent.moves import Best, Proposal, Skipped, aligned, embedded
from pgo_agent.agent.moves.base import Subject
from pgo_agent.sandbox import box, devices, target
from pgo_agent.sandbox.build import Builder
from pgo_agent.sandbox.bundle.shelf import Shelf
from pgo_agent.sandbox.gate.verdict import Verdict

from tests.agent.composing import HEADER, checked, outputs, reason, same_bits, taken
from tests.conftest import ROOT

H200 = devices.find("h200")
GEMM = ROOT / "kernels" / "gemm.py"
LAUNCH = "    _gemm[grid](a, b, c, M, N, K, *a.stride(), *b.stride(), c.stride(0))\n"
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
    return aligned.rewrite(Subject(source, "_gemm", H200, statics=statics))


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


def test_a_product_of_any_rows_is_the_same_and_goes_through_descriptors() -> None:
    calls = [*operands(65, 97, 83), *operands(64, 96, 128), *operands(1, 33, 9)]
    before, after = outputs(GEMM.read_text(), *calls), outputs(rewritten() + TAKEN, *calls)
    assert same_bits(before, [found[:1] for found in after])
    took = [bool(found[1].item()) for found in after]
    assert took == [True, True, False] * 3, "views are left to the loads, all else goes through descriptors"


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int8])
def test_rows_are_copied_where_they_must_be_and_only_there(dtype: torch.dtype) -> None:
    helpers = rewritten().partition("@triton.jit(do_not_specialize")
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
    call = dict(a=numbers(64, 97), b=numbers(97, 83))
    found = [product[:-1] for source in (GEMM.read_text(), rewritten(masked)) for (product,) in outputs(source, call)]
    assert torch.equal(*found)  # the last row's end is no part of a, and never was


@pytest.mark.slow
def test_the_rewritten_kernel_is_right_on_all_small_cases() -> None:
    found = checked(GEMM, rewritten())
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
    why = reason(aligned.rewrite, Subject(source, "_mhc_mm_norm_fwd_kernel", H200))
    assert why == "something else of the launcher may hang on where x lies"
    source = source.replace("torch.empty_like(x[:, 0], dtype=torch.float32)", "torch.empty(N, dtype=torch.float32)")
    changed = aligned.rewrite(Subject(source, "_mhc_mm_norm_fwd_kernel", H200))
    calls = [dict(x=numbers(40, 97), phi=numbers(97, 23)), dict(x=numbers(97, 40).T, phi=numbers(23, 97).T)]
    assert same_bits(outputs(source, *calls), outputs(changed, *calls))


# builds ---------------------------------------------------------------------------------------------------------------


def test_loads_of_odd_rows_become_copies_that_run_ahead(tmp_path: Path) -> None:
    gemm, shelf = target.read(GEMM), Shelf(tmp_path)
    made: dict[str, list[dict[str, Any]]] = {}
    for name, source in (("shipped", gemm.source), ("rewritten", rewritten())):
        built = Builder(gemm, H200, box.choose(), shelf).build(source, {"CASES": ["ragged"]}, 1)
        assert built.ok, built.failures
        made[name] = [built.statics[k] for k in built.choices["CASES/ragged"][0].kernels]
    (slow,) = made["shipped"]
    *copies, fast = made["rewritten"]
    assert not slow["async_copies"] and fast["async_copies"] and fast["sass"]["UTMALDG"]
    assert len(copies) in (1, 2) and not any(c["spill_store_bytes"] or c["dots"] for c in copies)


# what it does not do --------------------------------------------------------------------------------------------------


def moved(new: str, *more: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    return ((LAUNCH, new), *more)


PASSED = "_gemm[grid](a, b, c, M, N, K, {}, *b.stride(), c.stride(0))\n"
SEED = "    seed = tl.load(A + tl.arange(0, 16))\n"
MADE = "    c = torch.empty((M, N), device=a.device, dtype=a.dtype)\n"
EVEN_K = '"EVEN_K": lambda a: a["K"] % a["BLOCK_K"] == 0,'
DOT = "        acc = tl.dot(a, b, acc)\n"
A_CLASS = f"""class Product:
    def __call__(self, a, b, c, M, N, K, grid):
    {LAUNCH}

def kernel(a, b):
"""
REFUSED: dict[str, tuple[str, tuple[tuple[str, str], ...]]] = {
    "strides that were taken before": (
        "does not pass a stride of a as such",
        moved("    first, second = a.stride()\n    " + PASSED.format("first, second")),
    ),
    "another name for a tensor": (
        "something else of the launcher may hang on where a lies",
        moved("    again = a\n" + LAUNCH),
    ),
    "a launcher that gives a tensor back": (
        "a is used after the launch",
        (("    return c\n\n\n#", "    return c, a\n\n\n#"),),
    ),
    "a launch in a loop": ("launched in a loop", moved("    for _ in range(2):\n    " + LAUNCH)),
    "rows that are found by the shape": (
        "does not pass a stride of a as such",
        moved("    " + PASSED.format("a.shape[1], a.stride(1)")),
    ),
    "rows that are found by another tensor's strides": (
        "does not pass a stride of a as such",
        moved("    " + PASSED.format("*b.stride()")),
    ),
    "one stride for both dimensions": (
        "not found by the strides of the tensor",
        moved("    " + PASSED.format("a.stride(0), a.stride(0)")),
    ),
    "strides in a tuple": ("arguments that are not followed", moved("    s = (1, 1)\n    " + PASSED.format("*s"))),
    "too few arguments": ("arguments that are not followed", moved("    " + PASSED.format("a.stride(0)"))),
    "a tensor that is no name": (
        "not found by the strides of the tensor",
        moved(LAUNCH.replace("(a, b, c", "(a[0:], b, c")),
    ),
    "a stride that is passed as a size": (
        "decides something by a stride",
        moved(LAUNCH.replace("N, K", "N, a.stride(0)")),
    ),
    "columns that are counted by a stride": ("more than addresses", (("offs_k < K - k", "offs_k < stride_am - k"),)),
    "a loop that is as long as a stride": ("more than addresses", (("range(0, K, ", "range(0, stride_am, "),)),
    "a branch by a stride": ("more than addresses", (("        if EVEN_K:", "        if EVEN_K and stride_am:"),)),
    "a bound that is computed from a stride": (
        "more than addresses",
        (("    tiles_m =", "    end = 2 * stride_am\n    tiles_m ="), ("offs_k < K - k", "offs_k < end - k")),
    ),
    "a stride that decides at the launch": (
        "decides something by a stride",
        (('a["K"] % a["BLOCK_K"]', 'a["stride_am"] % a["BLOCK_K"]'),),
    ),
    "a function that decides at the launch": (
        "in a way that is not followed",
        ((EVEN_K, '"EVEN_K": even,'),),
    ),
    "heuristics that stand elsewhere": (
        "in a way that is not followed",
        (("@triton.heuristics(\n    {", "@triton.heuristics(\n    OTHERS | {"),),
    ),
    "a decorator that is not known": (
        "in a way that is not followed",
        (("@triton.jit\ndef _gemm", "@DECIDING\n@triton.jit\ndef _gemm"),),
    ),
    "the tensor itself at the launch": (
        "decides something by a stride",
        ((EVEN_K, '"EVEN_K": lambda a: a["A"].is_contiguous(),'),),
    ),
    "a stride at the launch, in two strings": (
        "in a way that is not followed",
        ((EVEN_K, '"EVEN_K": lambda a: a["stride_" "am"] == a["K"],'),),
    ),
    "a load by half a stride": (
        "reads in ways that are not followed",
        (
            ("    tiles_m =", "    half = stride_am // 2\n    tiles_m ="),
            (DOT, f"{DOT}        acc += tl.load(C + half)\n"),
        ),
    ),
    "half of a row": ("more than whole rows", (("a_ptrs = A + ", "a_ptrs = A + stride_am // 16 * 8 + "),)),
    "the end of a row": ("more than whole rows", (("a_ptrs = A + ", "a_ptrs = A + stride_am - 48 + "),)),
    "an address as a number": (
        "for more than addresses",
        ((DOT, f"{DOT}        tl.store(C + k, A.to(tl.int64))\n"),),
    ),
    "a helper with a name of the language's": (
        "for more than addresses",
        (("    tiles_m =", "    more = cast(stride_am)\n    tiles_m ="),),
    ),
    "an argument that a stride decides": (
        "something else of the launcher may hang on where a lies",
        moved(LAUNCH.replace("N, K", "N, K * (a.stride(0) % 2)")),
    ),
    "a step by another tensor's stride": (
        "found by another tensor's strides, too",
        (("a_ptrs = A + ", "a_ptrs = A + tile_n * stride_bn + "),),
    ),
    "a load in a loop of another kind": (
        "reads in ways that are not followed",
        (("    tiles_m =", "    while M < 0:\n        seed = tl.load(A)\n    tiles_m ="),),
    ),
    "a result that may lie in an operand": (
        "C may lie where an operand does",
        (("    c = torch.empty((M, N), device=a.device, dtype=a.dtype)\n", "    c = RESULT\n"),),
    ),
    "a result that the caller may give": ("C may lie", (("def kernel(a, b):", "def kernel(a, b, c=None):"),)),
    "a result that is given by another form": ("C may lie", moved(f"    for c in RESULTS:\n        break\n{LAUNCH}")),
    "a result that is another's memory": ("C may lie", ((MADE, MADE.replace(", dtype", ", out=a0, dtype")),)),
    "a result of an inner function": (
        "C may lie",
        ((MADE, f"    c = RESULT\n    def made():\n    {MADE}        return c\n"),),
    ),
    "a second result that may be missing": (
        "AUX may lie",
        (
            ("    stride_cm,\n", "    stride_cm,\n    AUX,\n"),
            (DOT, f"{DOT}        if AUX is not None:\n            tl.store(AUX + k, 1.0)\n"),
            (LAUNCH, LAUNCH.replace("stride(0))", "stride(0), RESULT)")),
        ),
    ),
    "a result that is stored under another name of the language": (
        "C may lie",
        (
            ("import triton\n", "import triton\nfrom triton import language\n"),
            (MADE, "    c = RESULT\n"),
            ("tl.store(c_ptrs", "language.store(c_ptrs"),
        ),
    ),
    "pointers that lie in memory": (
        "makes pointers of its own",
        ((DOT, f"{DOT}        tl.store(tl.cast(k, tl.pointer_type(tl.float16)), 1.0)\n"),),
    ),
    "an operand that is a part of another tensor": ("may be a part of another", moved("    a = c[:M]\n" + LAUNCH)),
    "a name that is given in an assertion": ("may be a part", moved("    assert (keep := a) is not None\n" + LAUNCH)),
    "a hook before the kernel": (
        "runs before the kernel",
        (("num_warps=8, num_stages=3)", "num_warps=8, pre_hook=print)"),),
    ),
    "a second launch": ("launched in 2 places", moved(LAUNCH + LAUNCH)),
    "a class that launches, too": ("launched in 2 places", (("def kernel(a, b):\n", A_CLASS),)),
    "a launch behind a condition": ("in a line of its own", moved(f"    if M: {LAUNCH.strip()}\n")),
    "a launch behind something else": ("in a line of its own", moved(f"    b.add_(1); {LAUNCH.strip()}\n")),
    "a launch for later": (
        "something may happen while it is launched",
        moved(f"    run = lambda: {LAUNCH.strip()}\n    run()\n"),
    ),
    "an argument that does something": (
        "something may happen while it is launched",
        moved(LAUNCH.replace("N, K", "N, ready(K)")),
    ),
    "a grid that does something": (
        "something may happen while it is launched",
        (("grid = lambda meta: (", "grid = lambda meta: b.add_(1) is None or ("),),
    ),
    "a grid by a stride": (
        "looks at arguments of the launch",
        moved(LAUNCH.replace("[grid]", "[lambda meta: (meta['stride_am'],)]")),
    ),
    "a stride by another name": ("may hang on where a lies", moved(LAUNCH.replace("N, K", "N, a.stride(dim=0)"))),
    "a tensor of the file": (
        "A0 is no parameter of the launcher",
        moved(LAUNCH.replace("(a,", "(A0,").replace("a.str", "A0.str"), ("CONFIGS = [", "A0 = None\nCONFIGS = [")),
    ),
    "loads that are not followed": (
        "reads in ways that are not followed",
        (("    tiles_m = tl.cdiv", f"{SEED}    tiles_m = tl.cdiv"),),
    ),
    "helpers of that name": ("the name _rows_aligned is taken", (("CONFIGS = [", "_rows_aligned = 1\nCONFIGS = ["),)),
}


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
    made = {m.move: m for m in embedded.propose(GEMM.read_text(), best, [], H200)}
    assert isinstance(made[aligned.MOVE.name], Proposal)
    del best["CASES/ragged"]
    made = {m.move: m for m in embedded.propose(GEMM.read_text(), best, [], H200)}
    assert isinstance(made[aligned.MOVE.name], Skipped)
