"""A judge whose process ends in the target's own code. The process is a script that ends as one does after an assertion
on a GPU: which process dies of what, no machine without a GPU can show."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgo_agent.sandbox.errors import Killed, TargetFault
from pgo_agent.sandbox.gate.reason import plain
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict
from pgo_agent.sandbox.judge import own_steps
from pgo_agent.sandbox.judge.gpu_judge import GpuJudge
from pgo_agent.sandbox.judge.machine import NOWHERE
from pgo_agent.sandbox.judge.own_steps import OwnStep, OwnSteps
from pgo_agent.sandbox.judge.questions import Numerics
from pgo_agent.sandbox.judge.results.stress_inputs import STRESS_INPUTS

from tests.agent.many import NOBODY

# It answers `open`, writes down what it is asked, and says in each question what it is about to do.
PROCESS = f"""#!{sys.executable}
import json, os, signal, sys, uuid
from pathlib import Path

ends, environment, judged = json.loads(Path(__file__).with_name("plan.json").read_text())
asked = open(Path(__file__).with_name("asked"), "a")

def say(**message):
    print(json.dumps(message), flush=True)

def step(stage, fatal):
    say(stage=stage, seconds=60.0)
    if fatal:
        say(crash="AcceleratorError: CUDA error: device-side assert triggered")
        os._exit(70)

unfit = []
for line in sys.stdin:
    question = json.loads(line)
    print(question["do"], file=asked, flush=True)
    if question["do"] == "open":
        unfit = question.get("unfit", [])
        say(answer=environment)
    elif question["do"] == "own":
        with_what = " with " + question["stress_input"] if question["stress_input"] else ""
        if "own killed" in ends:
            os.kill(os.getpid(), signal.SIGKILL)
        step("reference " + question["case"] + with_what, "own" in ends)
        say(answer={{}})
    else:
        step("reference CASES/one", "reference" in ends)
        if "a NaN in input 2" not in unfit:
            step("reference CASES/one with a NaN in input 2", "stress" in ends)
            step("reference CASES/one with " + uuid.uuid4().hex, "any stress" in ends)
        step("numerics CASES/one", "kernel" in ends)
        say(answer=judged)
"""
JUDGED = Judgement(Verdict.SLOWER, "numerics", plain("0.9x"))
Judged = Callable[..., tuple[Judgement, list[str]]]


@pytest.fixture
def judged(tmp_path: Path) -> Iterator[Judged]:
    judges = list[GpuJudge]()

    def judge(*ends: str) -> tuple[Judgement, list[str]]:
        """Ask for a verdict of processes that end so; return it, and what they were asked."""
        path = tmp_path / "python"
        path.write_text(PROCESS)
        path.chmod(0o700)
        path.with_name("plan.json").write_text(json.dumps([ends, NOWHERE.as_json(), JUDGED.as_json()]))
        judges.append(GpuJudge(NOBODY, str(path), gpu=None))
        verdict = judges[-1].verdict(Numerics({}, "numerics"))
        return verdict, path.with_name("asked").read_text().split()

    yield judge
    for one in judges:
        one.close()


def test_a_stress_input_that_ends_the_process_without_a_candidate_is_left_out(judged: Judged) -> None:
    verdict, asked = judged("stress", "own")
    assert verdict.verdict == Verdict.SLOWER
    assert asked == ["open", "numerics", "open", "own", "open", "numerics"]


def test_a_step_that_ends_a_process_only_where_a_candidate_ran_is_the_candidates(judged: Judged) -> None:
    verdict, asked = judged("stress")
    assert verdict.verdict == Verdict.CRASHED
    assert asked == ["open", "numerics", "open", "own", "numerics"]


def test_a_question_is_asked_once_more_at_most_whatever_steps_end_its_processes(judged: Judged) -> None:
    """A candidate that spoils memory may end it in another step each time."""
    verdict, asked = judged("any stress")
    assert verdict.verdict == Verdict.CRASHED
    assert asked.count("numerics") == 2


def test_somebody_who_kills_every_process_ends_the_question(judged: Judged) -> None:
    with pytest.raises(Killed):
        judged("stress", "own killed")


def test_a_candidates_own_step_is_asked_once(judged: Judged) -> None:
    verdict, asked = judged("kernel", "own")
    assert (verdict.verdict, verdict.stage) == (Verdict.CRASHED, "numerics")
    assert asked == ["open", "numerics"]


def test_a_reference_that_ends_every_process_is_a_fault_of_the_target(judged: Judged) -> None:
    with pytest.raises(TargetFault, match=r"(?s)reference\(\) ends the judge's process on .*one.*device-side assert"):
        judged("reference", "own")


@given(st.integers(0, len(STRESS_INPUTS) - 1), st.integers(0, 20), st.sampled_from(["CASES", "HELD_OUT"]))
def test_a_step_is_read_as_it_is_announced(at: int, draw: int, cases: str) -> None:
    stress_input = STRESS_INPUTS[at].of_draw(draw)
    step = OwnStep(f"{cases}/d64", stress_input.name)
    assert own_steps.read(step.announced) == step
    assert own_steps.read(OwnStep(step.case).announced) == OwnStep(step.case)


def test_one_stress_input_is_left_out_and_its_kind_only_after_several() -> None:
    """An index that a NaN of one input spoils says nothing of the others."""
    known, others = OwnSteps(), ("a NaN in input 5", "a NaN")
    known.leave_out("a NaN in input 2")
    known.leave_out("a NaN in input 3")
    assert own_steps.is_unfit("a NaN in input 3", known.unfit)
    assert not any(own_steps.is_unfit(n, known.unfit) for n in others)
    known.leave_out("a NaN in input 4")
    assert all(own_steps.is_unfit(n, known.unfit) for n in others)
    assert not own_steps.is_unfit("an infinity in input 2", known.unfit)
