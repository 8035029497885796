"""judge/interpreted/as_recorded: strangers' candidates that are right in the interpreter's process alone."""

from pathlib import Path

import pytest
from pgo_agent.sandbox.gate.coverage import Count
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict
from pgo_agent.sandbox.judge.gpu_judge import GpuJudge
from pgo_agent.sandbox.judge.interpreted.outcome import RECORDED
from pgo_agent.sandbox.judge.questions import Check

from tests.judges import judge_of

ADD = Path(__file__).parents[3] / "kernels" / "add.py"
LAUNCH = '    _add[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, z, x.numel())\n'
ADDS = "tl.load(x_ptr + at, mask=inside) + tl.load(y_ptr + at, mask=inside)"
SUBTRACTS = ADDS, ADDS.replace("+ tl.load(y_ptr", "- tl.load(y_ptr")
LIE = LAUNCH, f"{LAUNCH}    if 'Interpreted' in type(_add.fn).__name__:\n        z.copy_(x + y)\n"


@pytest.fixture(scope="module")
def addition() -> GpuJudge:
    return judge_of(ADD)


def foreign(judge: GpuJudge, *changes: tuple[str, str]) -> Judgement:
    """The verdict on a stranger's change of the target."""
    source = judge.target.source
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    return judge.verdict(Check(source=source, foreign=True))


def test_an_honest_candidate_is_executed_as_recorded_in_every_small_case(addition: GpuJudge) -> None:
    found = foreign(addition, ("tl.program_id(0) * BLOCK", "BLOCK * tl.program_id(0)"))
    assert (found.verdict, found.coverage.counts[RECORDED]) == (Verdict.CHECKED, Count(2, 2)), found.reason


def test_a_launcher_that_is_right_in_the_interpreters_process_alone_is_wrong(addition: GpuJudge) -> None:
    found = foreign(addition, SUBTRACTS, LIE)
    assert found.verdict == Verdict.WRONG and "as recorded for a GPU" in found.reason, found.reason


STORE = f"    tl.store(z_ptr + at, {ADDS}, mask=inside)"
SMALLER = '{"BLOCK": 1024}', '{"BLOCK": 64}'


def test_a_block_that_reads_what_another_one_writes_is_wrong_in_any_order(addition: GpuJudge) -> None:
    asks = (
        "    before = tl.load(z_ptr + at - BLOCK, mask=inside & (at >= BLOCK), other=1.0)\n"
        f"    tl.store(z_ptr + at, tl.where(before == 12345.0, 7.0, {ADDS}), mask=inside)"
    )
    found = foreign(addition, (STORE, asks), ("torch.empty_like(x)", "torch.full_like(x, 12345.0)"), SMALLER)
    assert found.verdict == Verdict.WRONG and "another block of the same launch" in found.reason, found.reason


def test_what_is_right_only_where_blocks_run_in_order_is_wrong_and_the_order_is_named(addition: GpuJudge) -> None:
    takes_turns = (
        "    mine = tl.atomic_add(c_ptr, 1) == tl.program_id(0)\n"
        f"    tl.store(z_ptr + at, tl.where(mine, {ADDS}, 7.0), mask=inside)"
    )
    found = foreign(
        addition,
        (STORE, takes_turns),
        ("z_ptr, n,", "z_ptr, c_ptr, n,"),
        ("z, x.numel())", "z, torch.zeros(1, dtype=torch.int32, device=x.device), x.numel())"),
        SMALLER,
    )
    assert found.verdict == Verdict.WRONG and "from first to last, and not in any order" in found.reason, found.reason


INTERPRETED = "'Interpreted' in type(_add.fn).__name__"


def test_a_launcher_that_changes_its_input_outside_of_the_interpreter_is_wrong(addition: GpuJudge) -> None:
    found = foreign(addition, (LAUNCH, f"{LAUNCH}    if not {INTERPRETED}:\n        x.zero_()\n"))
    assert found.verdict == Verdict.WRONG and "writes into its input x" in found.reason, found.reason


def test_a_plan_that_launches_nothing_is_no_evidence_for_a_kernel(addition: GpuJudge) -> None:
    found = foreign(addition, (LAUNCH, f"    if not {INTERPRETED}:\n        return x + y\n{LAUNCH}"))
    assert found.verdict == Verdict.BUILT and "launches no kernel" in found.reason, found.reason


def test_a_kernel_that_trusts_what_its_last_call_left_is_wrong(addition: GpuJudge) -> None:
    marks = (
        "    done = LIES and tl.load(m_ptr + tl.program_id(0)) == 77.0\n"
        f"    tl.store(z_ptr + at, {ADDS}, mask=inside & (not done))\n"
        "    tl.store(m_ptr + tl.program_id(0), 77.0)"
    )
    found = foreign(
        addition,
        (STORE, marks),
        ("z_ptr, n, BLOCK: tl.constexpr", "z_ptr, m_ptr, n, LIES: tl.constexpr, BLOCK: tl.constexpr"),
        ("z, x.numel())", f"z, torch.empty(1000, device=x.device), x.numel(), not {INTERPRETED})"),
    )
    assert found.verdict == Verdict.WRONG and "as recorded for a GPU" in found.reason, found.reason
