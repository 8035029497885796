"""The split causal loop: the same steps in the same order, the mask left out only where it hides nothing."""

import ast

import pytest
from pgo_agent.agent.moves import causal
from pgo_agent.agent.moves.move import Subject
from pgo_agent.sandbox import devices

from tests.agent.composing import reason, taken
from tests.conftest import ROOT

H200 = devices.find("h200")
LOOP = """
import triton, triton.language as tl

@triton.jit
def k(q, kp, vp, m, lo, hi, n, first, STEP: tl.constexpr, ROWS: tl.constexpr, CAUSAL: tl.constexpr):
    rows = first + tl.arange(0, ROWS)
    cols = tl.arange(0, STEP)
    keep = n

    # Over all keys.
    for i in range(lo, hi, STEP):
        at = i + cols  # the keys
        s = tl.dot(q, tl.load(kp + at[None, :]))
        # No later keys.
        s = tl.where(rows[:, None] >= at[None, :], s, float("-inf"))
        m = tl.maximum(m, tl.max(s, 1))
        kp += STEP
    tl.store(vp, m)
"""
SPLIT = """
import triton, triton.language as tl

@triton.jit
def k(q, kp, vp, m, lo, hi, n, first, STEP: tl.constexpr, ROWS: tl.constexpr, CAUSAL: tl.constexpr):
    rows = first + tl.arange(0, ROWS)
    cols = tl.arange(0, STEP)
    keep = n

    # All steps before `middle` lie wholly inside the mask and run without it.
    middle = tl.minimum(lo + tl.maximum(first - lo + 1, 0) // STEP * STEP, hi)
    # Over all keys.
    for i in range(lo, middle, STEP):
        at = i + cols  # the keys
        s = tl.dot(q, tl.load(kp + at[None, :]))
        m = tl.maximum(m, tl.max(s, 1))
        kp += STEP
    for i in range(middle, hi, STEP):
        at = i + cols  # the keys
        s = tl.dot(q, tl.load(kp + at[None, :]))
        # No later keys.
        s = tl.where(rows[:, None] >= at[None, :], s, float("-inf"))
        m = tl.maximum(m, tl.max(s, 1))
        kp += STEP
    tl.store(vp, m)
"""
WHERE = 's = tl.where(rows[:, None] >= at[None, :], s, float("-inf"))'
MASK = "rows[:, None] >= at[None, :]"
BARE = "        m = tl.maximum(m, tl.max(s, 1))\n        kp += STEP\n    for"


def rewritten(source: str, kernel: str = "k") -> str:
    return causal.rewrite(Subject(source, kernel, H200))


def changed(old: str, new: str) -> str:
    assert old in LOOP
    return LOOP.replace(old, new)


def halves(text: str) -> tuple[str, str]:
    """The bodies of the two loops."""
    loops = [ast.unparse(n) for n in ast.walk(ast.parse(text)) if isinstance(n, ast.For)]
    return loops[0], loops[1]


def test_the_loop_runs_without_the_mask_up_to_where_it_hides_something() -> None:
    assert rewritten(LOOP) == SPLIT


@pytest.mark.parametrize(
    ("new", "first", "second"),
    [
        ("at[None, :] <= rows[:, None]", "", MASK),
        ("(rows[:, None] >= at[None, :]) & (at < n)[None, :]", "s = tl.where((at < n)[None, :], s,", "&"),
        ("(at < n)[None, :] & (rows[:, None] > at[None, :])", "s = tl.where((at < n)[None, :], s,", "&"),
        ("(rows[:, None] >= at[None, :]) | (at < n)[None, :]", "", "|"),
        ("~(rows[:, None] < at[None, :])", "", "~(rows[:, None] < at[None, :])"),
    ],
)
def test_what_else_is_masked_stays_in_both_loops(new: str, first: str, second: str) -> None:
    bare, masked = halves(rewritten(changed(MASK, new)))
    assert first in bare and ("where" in bare) == bool(first)
    assert "tl.where" in masked and (second in masked or second == MASK)


@pytest.mark.parametrize(
    "new",
    [
        's = tl.where(at[None, :] > rows[:, None], float("-inf"), s)',
        's += tl.where(rows[:, None] >= at[None, :], 0, float("-inf"))',
        's = s + tl.where(rows[:, None] >= at[None, :], 0.0, -1.0e6)',
        's -= tl.where(rows[:, None] < at[None, :], 1.0e6, 0)',
        'keep = rows[:, None] >= at[None, :]\n        s = tl.where(keep, s, float("-inf"))',
        'keep = rows[:, None] >= at[None, :]\n        s = tl.where(keep, s, -1.0) * tl.where(keep, s, n)',
        's = tl.where(rows[:, None] >= at[None, :], s, float("-inf")).to(tl.float32)',
        's = tl.where(rows[:, None] >= i + tl.arange(0, STEP)[None, :], s, float("-inf"))',
        'later = i - first\n        s = tl.where(rows[:, None] - first >= (later + cols)[None, :], s, 0.0)',
    ],
)  # fmt: skip
def test_a_mask_may_be_written_in_many_ways(new: str) -> None:
    text = rewritten(changed(WHERE, new))
    bare, masked = halves(text)
    assert "where" not in bare and "tl.where" in masked
    assert "middle = tl.minimum(lo + tl.maximum(first - lo + 1, 0) // STEP * STEP, hi)" in text


def test_a_condition_that_is_built_up_step_by_step_loses_the_comparison_only() -> None:
    built = "keep = (at < n)[None, :]\n        keep &= rows[:, None] >= at[None, :]\n        s = tl.where(keep, s, 0.0)"
    bare, masked = halves(rewritten(changed(WHERE, built)))
    assert "keep &=" not in bare and "s = tl.where(keep, s, 0.0)" in bare
    assert "keep &= rows[:, None] >= at[None, :]" in masked


def test_a_mask_that_the_loads_use_too_loses_the_comparison_only() -> None:
    both = (
        "keep = (rows[:, None] >= at[None, :]) & (at < n)[None, :]\n        s += tl.load(vp + at, mask=keep)\n        "
    )
    bare, _ = halves(rewritten(changed(WHERE, both + "s = tl.where(keep, s, 0.0)")))
    assert "keep = (at < n)[None, :]" in bare and "tl.load(vp + at, mask=keep)" in bare


def test_under_a_constant_condition_only_its_build_is_split() -> None:
    text = rewritten(changed(WHERE, f"if CAUSAL:\n            {WHERE}\n        else:\n            s = s + 1.0"))
    (branch,) = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.If) and ast.unparse(n.test) == "CAUSAL"][:1]
    bare, masked = (ast.unparse(n) for n in branch.body if isinstance(n, ast.For))
    (original,) = (ast.unparse(n) for n in branch.orelse)
    assert not {"where", "CAUSAL", "+ 1.0"} & set(bare.split()) and "tl.where" not in bare
    assert "tl.where" in masked and "CAUSAL" not in masked
    assert (
        "if CAUSAL:" in original and "s = s + 1.0" in original and original.startswith("for i in range(lo, hi, STEP)")
    )


def test_a_condition_on_one_line_is_no_other() -> None:
    text = rewritten(changed(WHERE, f"if CAUSAL: {WHERE}"))
    assert text.count("tl.where") == 2 and "if CAUSAL:\n                s = tl.where(" in text


def test_the_other_branch_of_a_constant_condition_is_its_opposite() -> None:
    guarded = f"if CAUSAL and n is None:\n            s = s + 1.0\n        else:\n            {WHERE}"
    source = changed(WHERE, guarded).replace("hi, n,", "hi,").replace("CAUSAL: tl", "n: tl.constexpr, CAUSAL: tl")
    assert "    if not (CAUSAL and n is None):\n" in rewritten(source)


def test_a_quotient_among_the_bounds_stays_a_factor_of_its_own() -> None:
    text = rewritten(changed("rows = first +", "rows = first * (lo // tl.cdiv(n, 2)) +"))
    assert "tl.maximum(first * (lo // tl.cdiv(n, 2)) - lo + 1, 0)" in text


def test_a_step_by_its_name_stays_one() -> None:
    text = rewritten(changed("range(lo, hi, STEP)", "tl.range(lo, hi, step=STEP)"))
    assert "in tl.range(lo, middle, step=STEP):" in text and "in tl.range(middle, hi, step=STEP):" in text


def test_keywords_of_the_range_stay_and_its_end_is_taken_once() -> None:
    text = rewritten(changed("range(lo, hi, STEP)", "tl.range(0, hi + n, STEP, num_stages=2)"))
    assert "high = hi + n\n" in text and "in tl.range(0, middle, STEP, num_stages=2):" in text
    assert "in tl.range(middle, high, STEP, num_stages=2):" in text


def test_an_end_that_the_loop_changes_is_kept_as_it_was() -> None:
    text = rewritten(changed("        kp += STEP", "        kp += STEP\n        hi += 1"))
    assert "high = hi\n" in text and "range(middle, high, STEP)" in text


def test_a_loop_over_queries_is_masked_first() -> None:
    bare, masked = reversed(halves(rewritten(changed(MASK, "at[None, :] >= rows[:, None]"))))
    assert "range(middle, hi, STEP)" in bare and "where" not in bare
    assert "range(lo, middle, STEP)" in masked and "tl.where" in masked


def test_blocks_that_are_counted_and_columns_that_advance_are_followed() -> None:
    counted = changed("range(lo, hi, STEP)", "range(hi)").replace("i + cols", "i * STEP + cols")
    assert "middle = tl.minimum(tl.maximum(first + 1, 0) // STEP, hi)" in rewritten(counted)
    moved = changed("range(lo, hi, STEP)", "range(hi)").replace("i + cols", "here + cols")
    moved = moved.replace("keep = n", "by = STEP\n    here = n").replace("kp += STEP", "here += by")
    assert "middle = tl.minimum(tl.maximum(by + first - n - STEP + 1, 0) // by, hi)" in rewritten(moved)
    advancing = changed("        at = i + cols  # the keys\n", "").replace("at[", "cols[").replace("kp += ", "cols += ")
    assert "lo + tl.maximum(first + 1, 0) // STEP * STEP, hi)" in rewritten(advancing)


def test_a_start_that_is_computed_is_computed_once() -> None:
    text = rewritten(changed("range(lo", "range(first - n * STEP"))
    assert "low = first - n * STEP\n" in text and "for i in range(low, middle, STEP):" in text
    assert "middle = tl.minimum(low + tl.maximum(n * STEP + 1, 0) // STEP * STEP, hi)" in text
    loaded = rewritten(changed("range(lo", "range(tl.load(lo)"))
    assert "low = tl.load(lo)\n" in loaded and "low + tl.maximum(first - low + 1, 0)" in loaded


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("first + tl.arange(0, ROWS)", "tl.load(vp + tl.arange(0, ROWS))"),
        ("\n    # Over", "\n    rows += tl.where(first > n, n, 0)\n    n = 0\n    # Over"),
    ],
)
def test_rows_that_are_known_at_run_time_only_are_asked_for_their_smallest(old: str, new: str) -> None:
    text = rewritten(changed(old, new))
    assert "middle = tl.minimum(lo + tl.maximum(tl.min(rows) - lo + 1, 0) // STEP * STEP, hi)" in text


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (MASK, "rows[:, None] * at[None, :] >= 0", "not of plain indices"),
        (MASK, "rows[:, None] >= (at % n)[None, :]", "divides a tile of indices"),
        (MASK, "(rows[:, None] >= at[None, :]) & (rows[:, None] - at[None, :] < n)", "more than one mask"),
        (MASK, "(rows[:, None] >= at[None, :]) & ~(rows[:, None] < i + 1 + cols[None, :])", "more than one mask"),
        (MASK, "(rows[:, None] >= at[None, :]) & ~(rows[:, None] >= at[None, :])", "more than one mask"),
        (MASK, "(at < n)[None, :]", "no loop selects scores with tl.where by a comparison of rows with columns"),
        (MASK, "rows[:, None] == at[None, :]", "is not a comparison of order"),
        (MASK, "rows[:, None] * n >= at[None, :] * n", "the comparison is not of plain indices"),
        (WHERE, f"if n > 3:\n            {WHERE}", "decided at run time, by 'n > 3'"),
        (WHERE, f"{WHERE}\n        if n: break", "can be left early"),
        (WHERE, f"{WHERE}\n        STEP = STEP + 1", "not known to be positive"),
        (WHERE, f"keep = {MASK}\n        s = tl.where(keep, s, tl.sum(keep))", "keep is used for more than to select"),
        (WHERE, f"keep = {MASK}\n        s = tl.where(keep, s, 0) * keep", "keep is used for more than to select"),
        (WHERE, f"a = {MASK}\n        b = a & (at < n)\n        s = tl.where(b, s, tl.sum(b))", "b is used for more"),
        (WHERE, f"s = tl.where(keep, s, 0)\n        keep = {MASK}", "keep is carried from one iteration"),
        (WHERE, f"{WHERE} if n else s", "the mask is part of"),
        ("range(lo, hi, STEP)", "tl.range(lo, hi, STEP, warp_specialize=True)", "is warp-specialized"),
        (WHERE, WHERE.replace(", s,", ", s[:, None],"), "no loop selects scores"),
        (WHERE, WHERE.replace("s, float", "m, float"), "no loop selects scores"),
        (WHERE, WHERE.replace("s, float", "s.to(tl.float16), float").replace('float("-inf")', "m"), "another type"),
        (WHERE, "s = m[:, None] + tl.where(rows[:, None] >= at[None, :], 0, -1.0)", "shape of its mask"),
        ("range(lo, hi, STEP)", "range(lo, hi, n)", "the step n of the causal loop is not known to be positive"),
        ("range(lo, hi, STEP)", "range(hi, lo, -STEP)", "the step -STEP of the causal loop is not known"),
        ("range(lo, hi, STEP)", "tl.static_range(lo, hi, STEP)", "a loop that is not over a range"),
        ("    tl.store(vp, m)", "        rows += 1\n    tl.store(vp, m)", "does not move on by a multiple"),
        ("    tl.store(vp, m)", "        rows *= 2\n    tl.store(vp, m)", "changes from iteration to iteration"),
        ("    # Over", "    rows = tl.where(rows < n, rows, 0) + q\n    # Over", "is not index arithmetic"),
        ("        at = ", "        rows = tl.load(vp) + cols\n        at = ", "'tl.load(vp)' is not index arithmetic"),
        ("        at = ", "        rows = i // 2 + tl.arange(0, ROWS)\n        at = ", "i is not known before"),
    ],
)  # fmt: skip
def test_it_does_not_fire_where_it_cannot_show_what_the_mask_hides(old: str, new: str, why: str) -> None:
    assert why in reason(rewritten, changed(old, new))


def test_a_loop_that_was_split_before_is_left_alone() -> None:
    assert "the loop is split at middle already" in reason(rewritten, rewritten(LOOP))


HELPED = """
import triton, triton.language as tl

@triton.jit
def inner(q, kp, m, rows, cols, hi, STEP: tl.constexpr, MASKED: tl.constexpr):
    for i in range(0, hi, STEP):
        at = i + cols
        s = tl.dot(q, tl.load(kp + at[None, :]))
        if MASKED:
            s = tl.where(rows[:, None] >= at[None, :], s, float("-inf"))
        m = tl.maximum(m, tl.max(s, 1))
    return m

@triton.jit
def k(q, kp, vp, m, first, hi, STEP: tl.constexpr, ROWS: tl.constexpr, CAUSAL: tl.constexpr):
    rows = first + tl.arange(0, ROWS)
    m = inner(q, kp, m, rows, tl.arange(0, STEP), hi, STEP, CAUSAL)
    tl.store(vp, m)
"""


def test_in_a_helper_the_bound_is_taken_from_what_it_is_given() -> None:
    text = rewritten(HELPED)
    assert "tl.minimum(tl.maximum(tl.min(rows) + STEP - tl.max(cols), 0) // STEP * STEP, hi)" in text
    assert "    if MASKED:\n        # All steps before `middle`" in text


def test_a_helper_that_is_called_for_each_part_is_split_already() -> None:
    twice = HELPED.replace(
        "    tl.store", "    m = inner(q, kp, m, rows, tl.arange(0, STEP), hi, STEP, False)\n    tl.store"
    )
    assert "called for each part of the loop already: with MASKED=CAUSAL, MASKED=False" in reason(rewritten, twice)


@pytest.mark.parametrize("name", ["fa_fwd", "fa_bwd"])
def test_kernels_whose_loops_are_split_are_left_alone(name: str) -> None:
    assert "is called for each part of the loop already" in reason(
        rewritten, (ROOT / "kernels" / f"{name}.py").read_text(), f"_{name}"
    )


@pytest.mark.parametrize(
    ("module", "kernel"),
    [
        ("fused_neighborhood_attention", "_fused_neighborhood_attention_qk_kernel"),
        ("multi_token_attention", "_mask_fwd_kernel"),
    ],
)
def test_on_kernels_that_nobody_here_wrote_it_says_why_not(module: str, kernel: str) -> None:
    assert "no loop selects scores" in reason(rewritten, taken(f"liger_kernel.ops.{module}", kernel), kernel)
