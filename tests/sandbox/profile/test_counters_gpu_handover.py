"""sandbox/profile/counters/gpu_handover.py: who waits is told his GPU, or that nobody is left who could tell him."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pgo_agent.sandbox.profile.counters.gpu_handover import Handover, awaited

WAITS = "import sys, pathlib; from pgo_agent.sandbox.profile.counters.gpu_handover import awaited; " + (
    "print(repr(awaited(pathlib.Path(sys.argv[1]), lambda: None)))"
)
WORKS = "import os, sys, pathlib, time; from pgo_agent.sandbox.profile.counters.gpu_handover import awaited; " + (
    "print(awaited(pathlib.Path(sys.argv[1]), lambda: os._exit(7)), flush=True); time.sleep(600)"
)
GIVES = "import sys, pathlib, time; from pgo_agent.sandbox.profile.counters.gpu_handover import Handover; " + (
    "h = Handover(pathlib.Path(sys.argv[1])); print('there', flush=True); time.sleep(600)"
)


def started(program: str, folder: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", program, str(folder)], stdout=subprocess.PIPE, text=True)


def until_ready(folder: Path) -> None:
    until = time.monotonic() + 60
    while not (folder / "ready").exists():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_whoever_waits_is_told_the_gpu(tmp_path: Path) -> None:
    with Handover(tmp_path) as handover:
        assert not handover.ready()
        waiting = started(WAITS, tmp_path)
        until_ready(tmp_path)
        assert handover.ready() and waiting.poll() is None
        handover.give("GPU-1234")
        assert waiting.communicate(timeout=60)[0] == "'GPU-1234'\n"


@pytest.mark.parametrize("told", [signal.SIGKILL, signal.SIGTERM])
def test_whoever_waits_for_a_process_that_is_gone_ends(told: signal.Signals, tmp_path: Path) -> None:
    giving = started(GIVES, tmp_path)
    assert giving.stdout and giving.stdout.readline() == "there\n"
    waiting = started(WAITS, tmp_path)
    until_ready(tmp_path)
    os.kill(giving.pid, told)
    giving.communicate()
    assert waiting.communicate(timeout=60)[0] == "''\n"


def test_to_give_to_a_process_that_is_gone_is_no_fault(tmp_path: Path) -> None:
    with Handover(tmp_path) as handover:
        waiting = started(WAITS, tmp_path)
        until_ready(tmp_path)
        waiting.kill()
        waiting.communicate()
        handover.give("GPU-1234")


def test_a_gpu_may_be_given_before_anybody_waits(tmp_path: Path) -> None:
    with Handover(tmp_path) as handover:
        handover.give("GPU-1234")
        assert awaited(tmp_path, lambda: None) == "GPU-1234"


def test_whoever_was_given_a_gpu_ends_with_the_process_that_gave_it(tmp_path: Path) -> None:
    """An interrupted run gives up the GPU at once, and the next one would be timed beside what ncu launches."""
    giving = started(GIVES.replace("time.sleep(600)", "h.give('GPU-1'); time.sleep(600)"), tmp_path)
    assert giving.stdout and giving.stdout.readline() == "there\n"
    working = started(WORKS, tmp_path)
    assert working.stdout and working.stdout.readline() == "GPU-1\n"
    time.sleep(0.2)
    assert working.poll() is None
    giving.kill()
    giving.communicate()
    assert working.wait(60) == 7
