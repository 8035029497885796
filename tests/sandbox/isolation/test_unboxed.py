"""A process of ours that is forked, beside one that is begun anew: nothing differs but who imported its libraries."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pgo_agent.sandbox.isolation import forkserver, unboxed
from pgo_agent.sandbox.judge import worker_process
from pgo_agent.sandbox.judge.worker_process import Process

from tests.sandbox.isolation.test_forkserver import forkers, gone

SEEN = """
import json, os, sys
print("to the log", file=sys.stderr, flush=True)
status = open("/proc/self/status").read()
print(json.dumps({
    "environment": dict(os.environ), "path": sys.path, "argv": sys.argv, "cwd": os.getcwd(), "main": __name__,
    "read": sys.stdin.readline(), "kept": os.pread(int(os.environ["KEPT"]), 9, 0).decode(), "user": os.getresuid(),
    "open": len(os.listdir("/proc/self/fd")), "ignored": status.split("SigIgn:")[1].split()[0],
    "session": os.getsid(0) != os.getsid(os.getppid()) or os.getsid(0) == os.getppid(),
}), flush=True)
raise SystemExit(7)
"""
Began = Callable[..., unboxed.Forked]


@pytest.fixture(autouse=True)
def _light(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(forkserver.LIBRARIES, unboxed.MODULE, ("json",))


@pytest.fixture
def log(tmp_path: Path) -> Iterator[int]:
    with (tmp_path / "log").open("wb+") as file:
        file.write(b"something")
        file.flush()
        yield file.fileno()


@pytest.fixture
def began(log: int) -> Iterator[Began]:
    made: list[unboxed.Forked] = []

    def begin(code: str, **env: str) -> unboxed.Forked:
        variables = worker_process.environment(None) | env
        made.append(unboxed.Forked(["-c", code], variables, log, [log]))
        assert made[-1].came(120)
        return made[-1]

    yield begin
    for process in made:
        process.end()


def test_it_has_the_environment_folder_and_files_that_one_begun_anew_has(
    began: Began, log: int, tmp_path: Path
) -> None:
    env = worker_process.environment(None) | {"PYTHONPATH": f"{tmp_path}{os.pathsep}/nowhere", "OWN": "a value"}
    forked = began(SEEN, **env, KEPT=str(unboxed.KEPT))
    anew = worker_process._Anew([sys.executable, "-c", SEEN], env | {"KEPT": str(log)}, log, [log])
    seen = []
    for process in (forked, anew):
        assert process.stdin and process.stdout
        process.stdin.write(b"a line\n")
        seen.append(json.loads(process.stdout.readline()))
        assert process.wait(30) == 7
        seen[-1]["environment"].pop("KEPT")
    anew.end()
    assert seen[0] == seen[1] and seen[0]["kept"] == "something" and seen[0]["environment"]["OWN"] == "a value"
    assert (tmp_path / "log").read_text() == "something" + 2 * "to the log\n"


def test_a_signal_that_ended_it_is_told(began: Began) -> None:
    assert began("import os; os.kill(os.getpid(), 9)").wait(30) == -signal.SIGKILL
    assert began("import os; os.abort()").wait(30) == -signal.SIGABRT


def test_its_end_is_the_end_of_what_it_began(began: Began) -> None:
    process = began("import subprocess as s; print(s.Popen(['sleep', '600']).pid, flush=True); raise SystemExit")
    child = int(process.stdout.readline())
    assert process.wait(30) == 0 and Path(f"/proc/{child}").exists()
    process.end()
    assert gone([child])


def test_what_is_ended_before_it_came_never_runs(log: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = tmp_path / "ended"
    waits = f"import os, time\nwhile not os.path.exists({str(ended)!r}): time.sleep(0.01)\n"
    (tmp_path / "slow.py").write_text(waits)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("pgo_agent.sandbox.isolation.bubblewrap.extra_paths", lambda: [tmp_path])
    monkeypatch.setitem(forkserver.LIBRARIES, unboxed.MODULE, ("slow",))
    ran = tmp_path / "ran"
    for _ in range(30):  # which of two processes is first is chance
        process = unboxed.Forked(["-c", f"open({str(ran)!r}, 'w')"], worker_process.environment(None), log, [])
        process.end()
    ended.touch()
    after = unboxed.Forked(["-c", ""], worker_process.environment(None), log, [])
    assert after.came(60) and after.wait(60) == 0 and not ran.exists()
    after.end()


@pytest.mark.parametrize("why", ["no library", "killed"])
def test_where_it_cannot_be_forked_a_judge_is_begun_anew(
    why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "takes_long.py").write_text("import time\ntime.sleep(60)\n")  # long enough to be killed in
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("pgo_agent.sandbox.isolation.bubblewrap.extra_paths", lambda: [tmp_path])
    library = "no_such_library" if why == "no library" else "takes_long"
    monkeypatch.setitem(forkserver.LIBRARIES, unboxed.MODULE, (library, "json"))
    before = set(forkers())
    judge = Process(sys.executable, None)
    if why == "killed":
        while not (begun := set(forkers()) - before):  # what it is shows shortly after it began
            pass
        os.kill(begun.pop(), signal.SIGKILL)
    judge.keeps()
    assert isinstance(judge._begun, worker_process._Anew)
    judge.end()
