"""judge/interpreted: what a verdict without a GPU covers, and what it says was not checked of a target."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pgo_agent.sandbox import target
from pgo_agent.sandbox.gate.coverage import Count
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict
from pgo_agent.sandbox.interpreter import tensors
from pgo_agent.sandbox.judge.gpu_judge import GpuJudge
from pgo_agent.sandbox.judge.interpreted import outcome
from pgo_agent.sandbox.judge.questions import Check
from pgo_agent.sandbox.judge.results import numerics, sealed

from tests.judges import judge_of

ADD = Path(__file__).parents[3] / "kernels" / "add.py"


@pytest.fixture(scope="module")
def addition() -> GpuJudge:
    return judge_of(ADD)


JUDGES: dict[str, GpuJudge] = {}


@pytest.fixture(scope="module", autouse=True)
def _closed() -> Iterator[None]:
    yield
    for judge in JUDGES.values():
        judge.close()


def judged_as(folder: Path, text: str, source: str = "", **asked: Any) -> Judgement:
    """The verdict on a source, by default its own, for a target of this text. Each has one judge."""
    if text not in JUDGES:
        (folder / "add.py").write_text(text)
        JUDGES[text] = GpuJudge(target.read(folder / "add.py"), gpu=None)
    return JUDGES[text].verdict(Check(source=source or text, **asked))


@pytest.mark.long
def test_a_wrong_kernel_of_which_all_cases_are_in_bf16_is_wrong(tmp_path: Path) -> None:
    text = ADD.read_text().replace("dtype=torch.float32)", "dtype=torch.float32).to(torch.bfloat16)")
    found = judged_as(tmp_path, text.replace("    tl.store(z_ptr + at,", "    tl.store(z_ptr + at, 1.0 +"))
    assert found.verdict == Verdict.WRONG, found.reason


NINE = "configs=[" + "".join(f'triton.Config({{"BLOCK": 256, "W": {w}}}), ' for w in range(9)) + "]"


def test_a_mistake_in_the_last_of_nine_configurations_is_found_and_the_configuration_named(tmp_path: Path) -> None:
    text = re.sub(r"configs=\[.*?\](?=, key)", NINE, ADD.read_text(), flags=re.S)
    text = text.replace("BLOCK: tl.constexpr", "BLOCK: tl.constexpr, W: tl.constexpr")
    right = judged_as(tmp_path, text)
    assert (right.verdict, right.coverage.counts["configurations"]) == (Verdict.CHECKED, Count(9, 9)), right.reason
    wrong = judged_as(tmp_path, text, text.replace("    inside = at < n\n", "    inside = at < n - (W == 8)\n"))
    assert wrong.verdict == Verdict.WRONG and "in its configuration BLOCK=256 W=8" in wrong.reason, wrong.reason


WAITS = "    while tl.atomic_add(z_ptr, 0.0) != 7.0:\n        pass\n"


@pytest.mark.slow  # every run of it asks memory thousands of times
def test_blocks_that_wait_for_what_nobody_writes_are_a_deadlock_within_seconds(tmp_path: Path) -> None:
    inside = "    inside = at < n\n"
    text = ADD.read_text().replace(inside, f"{inside}{WAITS}").replace("torch.empty_like(x)", "torch.zeros_like(x)")
    started = time.monotonic()
    found = judged_as(tmp_path, text)
    assert (found.verdict, time.monotonic() - started < 60) == (Verdict.DEADLOCK, True), found.reason


@pytest.mark.slow
def test_what_ended_before_another_case_did_not_is_kept(tmp_path: Path) -> None:
    inside = "    inside = at < n\n"
    found = judged_as(
        tmp_path, ADD.read_text().replace(inside, f"{inside}    while n == 1000:\n        pass\n"), seconds=20
    )
    assert (found.verdict, "ragged: " in found.reason) == (Verdict.TIMEOUT, True), found.reason
    assert found.coverage.counts["small cases"] == Count(1, 2) and "without an end" in found.reason


def test_a_kernel_that_a_public_case_launches_and_no_small_one_is_not_called_right(addition: GpuJudge) -> None:
    source = addition.target.source
    assert addition.verdict(Check(source=source, kernels=("_add",))).verdict == Verdict.CHECKED
    found = addition.verdict(Check(source=source, kernels=("_add", "_wide")))
    assert found.verdict == Verdict.BUILT and found.reason.startswith("_wide: launched for the public cases")
    assert found.coverage.counts["kernels"] == Count(1, 2)


def test_a_case_without_elements_fails_nothing_and_covers_nothing(tmp_path: Path) -> None:
    text = ADD.read_text().replace("dict(n=1000)", "dict(n=0)")
    found = judged_as(tmp_path, text)
    assert (found.verdict, found.coverage.counts["small cases"]) == (Verdict.CHECKED, Count(1, 2)), found.reason
    none = text.replace("dict(n=2048)", "dict(n=0)").replace('HELD_OUT = {"odd": dict(n=9_991)}', "HELD_OUT = {}")
    found = judged_as(tmp_path, none)
    assert (found.verdict, found.coverage.empty) == (Verdict.BUILT, True), found.reason


def test_a_kernel_that_writes_its_result_into_its_argument_is_told_which_and_is_no_cheat(tmp_path: Path) -> None:
    text = ADD.read_text().replace("z = torch.empty_like(x)", "z = x")
    found = judged_as(tmp_path, text)
    assert found.verdict == Verdict.REJECTED and "writes into its argument x" in found.reason
    assert judged_as(tmp_path, ADD.read_text(), text).verdict == Verdict.REJECTED


def test_what_the_interpreter_does_not_model_is_no_evidence_for_or_against(tmp_path: Path) -> None:
    import torch

    values = sealed.seal(torch.zeros(4, dtype=torch.float64))
    expected = numerics.Expected("even", 0, (values,), (numerics.Error(0.0, 0.0, 0),), ((0.0, 0.0),), ("float32",))
    trial = outcome.Trial("even", 0, {})
    out = tensors.save({"0": torch.ones(4)}, tmp_path, "0")
    told = {"outputs": out, "changed": [], "stray": 0, "launched": ["_k"]}
    assert isinstance(outcome.compared(trial, told, expected, {}, tmp_path, is_target=False), Judgement)
    said = outcome.compared(trial, told | {"not_modelled": ["a NaN"]}, expected, {}, tmp_path, is_target=False)
    assert isinstance(said, str) and "a NaN" in said
    covered = outcome.Covered(1, 0, ())
    covered.says_nothing(trial, told, said)
    assert outcome.verdict(covered, {}).verdict == Verdict.BUILT


@pytest.mark.parametrize(
    ("functions", "ran"),
    [({"_add": 1}, True), ({"_add": 1, "_add_wide": 1}, False), ({"_add": 1, "_add_wide": 2}, False)],
)
def test_a_kernel_vouches_for_no_other_function_whose_name_begins_with_its_own(
    functions: dict[str, int], ran: bool
) -> None:
    covered = outcome.Covered(1, 0, ["_add_wide"], functions, kernels={"_add"})
    assert covered.saw("_add_wide") is ran
    assert covered.saw("_add") and not outcome.Covered(1, 0, (), {"_add": 2}, kernels={"_add"}).saw("_add")


ROWS = """
import torch
import triton
import triton.language as tl


@triton.jit
def _add(x, y, z, sx, sy, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    some = tl.load(x + row * sx + at, at < n, 0.0) + tl.load(y + row * sy + at, at < n, 0.0)
    tl.store(z + row * n + at, some, at < n)


def kernel(x, y):
    z = torch.empty(x.shape, device=x.device)
    _add[(x.shape[0] * x.shape[1],)](x, y, z, x.stride(1), y.stride(1), x.shape[2], BLOCK=64)
    return z


def reference(x, y):
    return x + y


def inputs(case, generator):
    x, y = (torch.randn(case["b"], case["h"], case["n"], generator=generator, device=generator.device) for _ in "xy")
    return {"x": x, "y": y}


CASES = {"large": dict(b=64, h=1024, n=60)}
SMALL = {"one": dict(b=1, h=3, n=60)}
HELD_OUT = {}


def flops(case):
    return case["b"] * case["h"] * case["n"]


def bytes_moved(case):
    return 12 * flops(case)
"""


def test_a_stride_of_another_tensor_is_found_where_rows_lie_apart(tmp_path: Path) -> None:
    assert judged_as(tmp_path, ROWS).verdict == Verdict.CHECKED
    found = judged_as(tmp_path, ROWS, ROWS.replace("row * sy", "row * sx"))
    assert found.verdict == Verdict.WRONG and "with rows apart" in found.reason


def test_a_size_that_is_one_in_every_case_that_ran_is_told(tmp_path: Path) -> None:
    found = judged_as(tmp_path, ROWS)
    assert "b above 1 (it is 1 in every case that was checked, and 64 in large)" in found.reason
    assert "h above 1" not in found.reason
    held_out = ROWS.replace("HELD_OUT = {}", 'HELD_OUT = {"two": dict(b=2, h=1, n=8)}')
    assert "above 1" not in judged_as(tmp_path, held_out).reason
