"""judge/process.py where several threads hold one process; it is a shell script that never says a word."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from pgo_agent.sandbox.errors import EnvironmentFault
from pgo_agent.sandbox.judge.gpu_judge import GpuJudge
from pgo_agent.sandbox.judge.interface import Ended, NoStart
from pgo_agent.sandbox.judge.questions import Hello
from pgo_agent.sandbox.judge.worker_process import Process

from tests.agent.many import NOBODY

TIMES = 60  # a race that one wake-up in four loses


@pytest.fixture
def mute(tmp_path: Path) -> str:
    path = tmp_path / "python"
    path.write_text("#!/bin/sh\nexec sleep 60\n")
    path.chmod(0o700)
    return str(path)


def test_who_waits_for_the_line_of_a_process_is_answered_when_another_thread_ends_it(mute: str) -> None:
    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(TIMES):
            process, lines = Process(mute, None), list[bytes | None]()
            deadline = time.monotonic() + 30
            waits = threading.Thread(target=lambda p=process, got=lines, d=deadline: got.append(p.line(d)))
            waits.start()
            time.sleep(0.002)
            process.end()
            waits.join(10)
            assert lines == [b""]
    finally:
        sys.setswitchinterval(switching)


def test_a_process_that_was_ended_prints_and_says_nothing_more(mute: str) -> None:
    process = Process(mute, None)
    process.end()
    assert (process.line(time.monotonic() + 30), process.printed()) == (b"", "")
    with pytest.raises(BrokenPipeError):
        process.say({"do": "hello"})


def test_a_judge_that_is_closed_while_it_starts_asks_nobody(mute: str, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = GpuJudge(NOBODY, mute, gpu=None)
    new, made = GpuJudge._new, list[Process]()

    def closed_meanwhile(self: GpuJudge) -> Process:
        made.append(new(self))
        self.close()
        return made[-1]

    monkeypatch.setattr(GpuJudge, "_new", closed_meanwhile)
    with pytest.raises(NoStart):
        judge.ask(Hello())
    judge.prepare(2)
    assert [p.status() for p in made] == [-9] * len(made)


def test_a_command_that_waits_is_over_when_its_judge_is_closed(mute: str) -> None:
    judge, ended = GpuJudge(NOBODY, mute, gpu=None), list[Exception]()

    def ask() -> None:
        try:
            judge.ask(Hello())
        except (Ended, EnvironmentFault) as e:
            ended.append(e)

    asks = threading.Thread(target=ask)
    asks.start()
    while not judge.started:
        time.sleep(0.01)
    judge.close()
    asks.join(10)
    assert len(ended) == 1


ORPHAN = """
import os, sys, time
import pgo_agent.sandbox.judge.__main__ as judge
judge.ENDING = 0.2
judge.end_with(os.getppid())
print("works", flush=True)
time.sleep(600)
"""


def test_a_process_that_hangs_ends_with_its_input_whatever_tool_it_runs_under() -> None:
    """The parent of such a process is the tool, which may live on when the run is gone."""
    tool = ["sh", "-c", '"$@"; echo ended $?', "sh"]
    with subprocess.Popen([*tool, sys.executable, "-c", ORPHAN], stdin=-1, stdout=-1, text=True) as run:
        assert run.stdin and run.stdout and run.stdout.readline() == "works\n"
        run.stdin.close()
        assert run.stdout.readline() == "ended 71\n"
