"""Source moves: they fire where they can prove that no value changes, and say why they do not elsewhere."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pgo_agent.agent.moves import Best, Proposal, Skipped, carry, catalogue
from pgo_agent.agent.moves.move import Subject
from pgo_agent.agent.run import incumbent
from pgo_agent.agent.run.record.baseline import BaselinePoint, TimeSource
from pgo_agent.sandbox import devices
from pgo_agent.sandbox.gate.verdict import Verdict

from tests.agent.composing import checked, reason
from tests.conftest import FA_FWD, ROOT

H200 = devices.find("h200")
LOOP = """
import triton, triton.language as tl
@triton.jit
def k(q, kp, vp, acc, m, lo, hi, STEP: tl.constexpr):
    for i in range(lo, hi, STEP):
        s = tl.dot(q, tl.load(kp + i))
        p = tl.math.exp2(s - m)
        v = tl.load(vp + i)
        acc = tl.dot(p.to(v.dtype), v, acc)
    return acc
"""


def rewritten(source: str, kernel: str = "k") -> str:
    return carry.rewrite(Subject(source, kernel, H200))


def test_the_second_dot_runs_after_the_next_first_dot() -> None:
    lines = [line.strip() for line in rewritten(LOOP).splitlines()]
    inner = lines[lines.index("for i in range(lo + STEP, hi, STEP):") :]
    first, second = inner.index("s = tl.dot(q, tl.load(kp + i))"), inner.index("acc = tl.dot(acc_waiting, v, acc)")
    assert first < inner.index("v = tl.load(vp + i_before)") < second < inner.index("p = tl.math.exp2(s - m)")


def test_bounds_that_are_no_plain_names_mean_the_same_in_every_place() -> None:
    text = rewritten(LOOP.replace("range(lo, hi, STEP)", "range(lo & -8, hi if m else lo, 16)"))
    assert "    if lo & -8 < (hi if m else lo):\n        i = lo & -8\n" in text
    assert "for i in range((lo & -8) + 16, hi if m else lo, 16):" in text
    assert "i_last = (lo & -8) + (tl.cdiv((hi if m else lo) - (lo & -8), 16) - 1) * 16" in text


def test_a_step_that_nothing_shows_to_be_positive_is_asserted_to_be() -> None:
    assert "    if lo < hi:\n        tl.static_assert(STEP > 0)\n        i = lo\n" in rewritten(LOOP)
    ranged = rewritten(LOOP.replace("    for i", "    at = tl.arange(0, STEP)\n    for i"))
    assert "    if lo < hi:\n        i = lo\n" in ranged


def test_an_empty_range_still_does_nothing() -> None:
    assert "if lo < hi:" in rewritten(LOOP)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("        v = tl.load", "        m = m + tl.sum(acc)\n        v = tl.load", "reads its accumulator"),
        ("        v = tl.load(vp + i)\n", "        v = tl.load(vp + tl.sum(s))\n", "not loaded in the loop"),
        ("v, acc)\n    return acc", "v, acc)\n    return acc + v", "used outside of the loop"),
        ("range(lo, hi, STEP)", "range(lo, hi)", "without plain start, stop and step"),
        ("range(lo, hi, STEP)", "tl.range(lo, hi, STEP, num_stages=2)", "without plain start, stop and step"),
        ("acc = tl.dot(p.to(v.dtype), v, acc)", "acc += tl.dot(p.to(v.dtype), v)", "not a plain assignment"),
        ("acc = tl.dot(p.to(v.dtype), v, acc)", "acc = tl.fma(tl.dot(p, v), v, acc)", "not a plain assignment"),
        ("range(lo, hi, STEP)", "range(hi, lo, -STEP)", "step of its loop is not known to be positive"),
        ("STEP: tl.constexpr", "STEP", "step of its loop is not known to be positive"),
        ("range(lo, hi, STEP)", "range(lo, tl.load(m), STEP)", "may change when it is computed twice"),
        ("        p = tl.math", "        hi = hi - 1\n        p = tl.math", "may change when it is computed twice"),
        ("        p = tl.math", "        s = tl.dot(s, q)\n        p = tl.math", "3 dots"),
        ("def k(", "def k(acc_waiting, ", "used outside of the loop"),
    ],
)  # fmt: skip
def test_it_does_not_fire_where_it_cannot_prove_that_values_stay(old: str, new: str, why: str) -> None:
    assert old in LOOP
    assert why in reason(rewritten, LOOP.replace(old, new))


@pytest.mark.parametrize("name", ["gemm.py", "fa_bwd.py"])
def test_on_kernels_of_another_form_it_says_why_not(name: str) -> None:
    assert "dots, not two" in reason(rewritten, (ROOT / "kernels" / name).read_text(), f"_{name[:-3]}")


@pytest.mark.slow
def test_a_rewritten_attention_kernel_is_right_on_all_small_cases() -> None:
    found = checked(FA_FWD, rewritten(FA_FWD.read_text(), "_fa_fwd"))
    assert found.verdict == Verdict.CHECKED, found.reason


def test_a_move_for_another_architecture_is_listed_as_skipped(tmp_path: Path) -> None:
    static = {"registers": 128, "shared": 65536, "pipeline_depth": 3, "sass": {"all": 1}, "loop_flops": 1}
    best = {"CASES/x": Best({"BLOCK_M": 64, "num_warps": 4, "num_stages": 3}, static)}
    found = list(catalogue.propose(FA_FWD.read_text(), best, [], devices.find("a100")))
    assert Skipped("carry the second dot", "not for sm_80") in found
    assert not [p for p in found if isinstance(p, Proposal) and p.move == "carry the second dot"]


STATIC = {"registers": 128, "shared": 65536, "pipeline_depth": 3, "sass": {"all": 1}, "loop_flops": 1}


def test_a_kernel_that_no_timed_case_launches_is_left_alone() -> None:
    second = "\n\n@triton.jit\ndef _rare(x):\n    tl.store(x, 0.0)\n\n\ndef rarely(x):\n    _rare[(1,)](x)\n"
    best = {"CASES/x": Best({"BLOCK_M": 64, "num_warps": 4, "num_stages": 3}, STATIC, {"_fa_fwd": STATIC})}
    found = list(catalogue.propose(FA_FWD.read_text() + second, best, [], H200))
    assert Skipped("every move in _rare", "no case that is timed launches it") in found
    moves = [x.move for x in found]
    assert [m for m in moves if m.endswith("_rare")] == ["every move in _rare"]
    assert any(m.endswith("_fa_fwd") for m in moves)


def test_what_only_prepares_for_another_kernel_has_its_turn_last() -> None:
    first = "\n\n@triton.jit\ndef _first(x):\n    tl.store(x, 0.0)\n\n\ndef before(x):\n    _first[(64,)](x)\n"
    both = {"_fa_fwd": STATIC | {"dots": 2}, "_first": STATIC | {"dots": 0}}
    best = {"CASES/x": Best({"BLOCK_M": 64, "num_warps": 4, "num_stages": 3}, both["_fa_fwd"], both)}
    found = list(catalogue.propose(FA_FWD.read_text() + first, best, [], H200))
    source_moves = [x.move for x in found if not isinstance(x, Proposal) or x.kind == "source"]
    own = [m.endswith("_first") for m in source_moves if m.endswith(("_first", "_fa_fwd"))]
    assert own == sorted(own) and {True, False} <= set(own)


def brought(fastest: int, tied: int) -> str:
    """The configurations of a rewrite that finds the first of two in front."""
    first, other = ({"BLOCK_M": 64, "BLOCK_N": n, "num_warps": 4, "num_stages": 3} for n in (fastest, tied))
    static = STATIC | {"spill_store_bytes": 0, "notes": [], "dots": 2}
    best = {"CASES/x": Best(first, static, {"_fa_fwd": static}, near=(other,))}
    made = catalogue.propose(FA_FWD.read_text(), best, [], H200)
    text = next(p.source for p in made if isinstance(p, Proposal) and p.move == "carry the second dot")
    return text.split("@triton.autotune(")[1].split("key=")[0]


def test_a_rewrite_brings_all_that_tie_whichever_of_them_was_in_front() -> None:
    for listed in (brought(32, 64), brought(64, 32)):
        for n in (32, 64):
            assert f'{{"BLOCK_M": 64, "BLOCK_N": {n}}}, num_warps=4, num_stages=3' in listed


def test_what_ties_was_timed_beside_the_best_and_is_right() -> None:
    def point(n: int, ms: float | None, case: str = "CASES/x", **changes: Any) -> BaselinePoint:
        plain = {"bundle": "b", "choice": "c", "said": "c", "codes": (), "how": TimeSource.MEASURED, "finalist": True}
        own = {"case": case, "plan_id": f"{n}", "ms": ms, "config": {"BLOCK": n}}
        return BaselinePoint(**(plain | own | changes))

    best = point(1, 1.0)
    others = [
        point(2, 1.004),
        point(3, 1.001),
        point(4, 1.006),
        point(5, 1.0, case="CASES/y"),
        point(6, 1.0, problem="wrong"),
        point(7, 1.0, finalist=False),
        point(8, 1.0, how=TimeSource.ESTIMATE),
        point(9, None),
    ]
    assert incumbent.near([best, *others], best) == ({"BLOCK": 3}, {"BLOCK": 2})
    assert incumbent.near([best, *others], replace(best, how=TimeSource.ESTIMATE)) == ()


def test_warps_and_stages_of_a_gluon_kernel_are_its_texts_and_not_varied() -> None:
    path = ROOT / "evals" / "corpus" / "targets" / "attention_specialized.py"
    config = {"D": 128, "M": 128, "N": 64, "num_warps": 4}
    best = {"CASES/x": Best(config, STATIC, {"_attention": STATIC})}
    launches = [p.move for p in catalogue.propose(path.read_text(), best, [], H200) if isinstance(p, Proposal)]
    assert not [m for m in launches if m.startswith(("num_", "maxnreg"))]
    plain = path.read_text().replace("@gluon.jit", "@triton.jit")
    also = [p.move for p in catalogue.propose(plain, best, [], H200) if isinstance(p, Proposal)]
    assert [m for m in also if m.startswith("num_")]
