"""Runs the real command line in a process of its own, on targets written into a folder of the test."""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.conftest import ROOT, TARGETS

_FROM_THE_START = ("PYTHON", "LD_", "LC_", "LANG")  # variables that are read before a line of ours is
_lock = threading.Lock()
ADD = (TARGETS / "add.py").read_text()


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


def command(*args: str | Path) -> list[str]:
    return [sys.executable, "-m", "pgo_agent.agent.cli.main", *map(str, args)]


def pgo(*args: str | Path, cwd: Path, seconds: float = 300, **env: str) -> Done:
    """`pgo-agent ARGS` in `cwd`, to its end: a process that is forked from one that has its libraries."""
    wanted = os.environ | env
    with _lock:
        warm = _started(tuple((k, v) for k, v in sorted(wanted.items()) if k.startswith(_FROM_THE_START)))
    return warm.pgo([str(a) for a in args], cwd, wanted, seconds)


class _Warm:
    """A process that forks others (`warm_command_line.py`)."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", "tests.agent.warm_command_line"]
            self._process = subprocess.Popen(command, cwd=ROOT, stdin=theirs.fileno())

    def pgo(self, args: list[str], cwd: Path, env: dict[str, str], seconds: float) -> Done:
        """Runs it; as `subprocess.run`, waits until nobody has its output open any more."""
        (out, out_end), (err, err_end), (status, status_end) = os.pipe(), os.pipe(), os.pipe()
        request = json.dumps({"args": args, "cwd": str(cwd.resolve()), "env": env}).encode()
        socket.send_fds(self._ours, [request], [out_end, err_end, status_end])
        for fd in (out_end, err_end, status_end):
            os.close(fd)
        with os.fdopen(status) as told, ThreadPoolExecutor(2) as readers:
            pid = int(told.readline() or -1)
            printed = [readers.submit(_text, fd) for fd in (out, err)]
            _, late = wait(printed, seconds)
            if late:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(["pgo-agent", *args], seconds)
            return Done(int(told.readline()), *(p.result() for p in printed))

    def end(self) -> None:
        self._ours.close()
        self._process.wait()


def _text(fd: int) -> str:
    with os.fdopen(fd) as file:
        return file.read()


@cache
def _started(_environment: tuple[tuple[str, str], ...]) -> _Warm:
    """One for each environment that Python, or what a box may read, is told from the start."""
    warm = _Warm()
    atexit.register(warm.end)
    return warm


def write(folder: Path, *changes: tuple[str, str], name: str = "add.py") -> Path:
    """The `add` target with some of its text replaced."""
    text = ADD
    for old, new in changes:
        assert old in text, f"the target no longer holds {old!r}"
        text = text.replace(old, new)
    path = folder / name
    path.write_text(text)
    return path
