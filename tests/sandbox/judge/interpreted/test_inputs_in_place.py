"""judge/interpreted: a kernel that changes inputs which its contract names, and nothing else, is right."""

from pathlib import Path

import pytest
from pgo_agent.sandbox.gate.coverage import Count
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.judge.gpu_judge import GpuJudge

from tests.conftest import TARGETS
from tests.judges import judge_of, judged

MOMENTUM = TARGETS / "momentum.py"
STORE = "    tl.store(M + at, m, mask=inside)\n"


@pytest.fixture(scope="module")
def momentum() -> GpuJudge:
    return judge_of(MOMENTUM)


def test_each_run_finds_the_named_inputs_as_they_were_given_though_the_reference_changes_them_too(
    momentum: GpuJudge,
) -> None:
    found = judged(momentum)
    assert found.verdict == Verdict.CHECKED, found.reason
    assert found.coverage.counts["small cases"] == Count(2, 2) and found.coverage.counts["outputs"] == Count(2, 2)


def test_an_input_that_is_not_named_must_stay_as_it_is(momentum: GpuJudge) -> None:
    found = judged(momentum, STORE, STORE + "    tl.store(G + at, 0 * g, mask=inside)\n")
    assert (found.verdict, found.reason) == (Verdict.CHEATING, "even: the inputs were changed: g")


def test_a_step_that_is_done_twice_is_wrong(momentum: GpuJudge) -> None:
    found = judged(momentum, "    step(p, g, exp_avg, lr)\n", "    step(p, g, exp_avg, lr)\n" * 2)
    assert found.verdict == Verdict.WRONG, found.reason


def test_a_target_that_names_too_few_is_told_which_and_what_to_write(tmp_path: Path) -> None:
    path = tmp_path / "momentum.py"
    path.write_text(MOMENTUM.read_text().replace('IN_PLACE = ("p", "exp_avg")', 'IN_PLACE = ["p"]'))
    found = judged(judge_of(path))
    assert found.verdict == Verdict.REJECTED
    assert "writes into its argument exp_avg" in found.reason and "name it in IN_PLACE" in found.reason
