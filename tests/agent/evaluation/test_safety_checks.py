"""What a sanitized run says is told apart: a hazard, a hang, nothing, and a failure that proves nothing."""

import pytest
from pgo_agent.agent.evaluation.safety_checks import hazard, idle_in_all
from pgo_agent.sandbox.gate.reason import quoted
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict

PENDING = "Accessing buffer with pending access. Pending access type: async_copy_global_to_shared"


def asserted(words: str) -> str:
    """What a process leaves behind that a device-side assertion ended: a line for each thread."""
    return f"k.py:12: _fa_fwd: block: [3,0,0], thread: [0,0,0] Assertion `{words}` failed.\n" * 3 + "CUDA_ERROR_ASSERT"


def said(verdict: Verdict, reason: str) -> Judgement:
    return Judgement(verdict, "race", quoted(reason))


def test_an_assertion_of_the_sanitizer_is_a_race_in_its_own_words() -> None:
    found = hazard(said(Verdict.CRASHED, asserted(PENDING)))
    assert found is not None
    assert (found.stage, found.verdict) == ("race", Verdict.RACE)
    assert found.reason == f"Triton's concurrency sanitizer: {PENDING}"


def test_its_word_for_threads_that_all_wait_is_a_deadlock() -> None:
    found = hazard(said(Verdict.CRASHED, asserted("Deadlock detected: all active threads are waiting on mbarriers")))
    assert found is not None and found.verdict == Verdict.DEADLOCK


def test_a_trap_of_a_sanitized_build_is_a_finding_without_words() -> None:
    """In its PTX every trap stands behind an assertion; the plain build has none, and passed before."""
    found = hazard(said(Verdict.CRASHED, "AcceleratorError: CUDA error: an illegal instruction was encountered"))
    assert found is not None and found.verdict == Verdict.RACE


def test_a_sanitized_run_that_does_not_end_proves_nothing() -> None:
    """It is many times slower than the plain build, which did end."""
    assert hazard(said(Verdict.TIMEOUT, "did not end: stopped in 'race' at its deadline")) is None


@pytest.mark.parametrize("reason", ["CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "CUDA_ERROR_ILLEGAL_ADDRESS", ""])
def test_a_crash_without_its_words_proves_nothing(reason: str) -> None:
    assert hazard(said(Verdict.CRASHED, reason)) is None


def test_a_launch_has_to_be_idle_in_every_case_that_launches_it() -> None:
    """A kernel for edges has nothing to do where there are none, and a fig leaf nowhere."""
    one = idle_in_all({}, ["main", "edge", "leaf"], ["edge", "leaf"])
    assert one == {"main": 0, "edge": 1, "leaf": 1}
    assert idle_in_all(one, ["main", "edge"], []) == {"main": 0, "edge": 0, "leaf": 1}
    assert idle_in_all(one, ["main", "leaf"], ["main", "leaf"]) == {"main": 0, "edge": 1, "leaf": 1}
    assert idle_in_all(one, ["late", "late"], ["late"])["late"] == 1
