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
from typing import Any, TextIO

from pgo_agent.sandbox.isolation import lending

from tests.conftest import ROOT, TARGETS
from tests.shared_builds import lend

_FROM_THE_START = ("PYTHON", "LD_", "LC_", "LANG")  # variables that are read before a line of ours is
_lock = threading.Lock()
ADD = (TARGETS / "add.py").read_text()
PYTEST = ("pytest", "-p", "no:hypothesispytest")  # of a user's: that plugin's import, watched, takes seconds


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


def pgo(*args: str | Path, cwd: Path, seconds: float = 300, program: str = "", **env: str) -> Done:
    """`pgo-agent ARGS` in `cwd`, to its end: a process that is forked from one that has its libraries.

    `program`: a module whose `main` runs in its place.
    """
    begun = begin(*args, cwd=cwd, program=program, **env)
    out, err = begun.communicate(seconds)
    return Done(begun.returncode, out, err)


def begin(*args: str | Path, cwd: Path, program: str = "", **env: str) -> "Begun":
    """The same, for who reads what it prints and sends it signals meanwhile."""
    wanted = os.environ | env
    with _lock:
        warm = _started(tuple((k, v) for k, v in sorted(wanted.items()) if k.startswith(_FROM_THE_START)))
    return warm.begin({"args": [str(a) for a in args], "cwd": str(cwd.resolve()), "env": wanted, "program": program})


class Begun:
    """A command that goes on, as `subprocess.Popen` has it."""

    returncode: int

    def __init__(self, args: list[str], out: int, err: int, status: int) -> None:
        self.args, self.stdout, self.stderr, self._status = args, os.fdopen(out), os.fdopen(err), os.fdopen(status)
        self.pid = int(self._status.readline() or -1)

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def communicate(self, timeout: float = 300) -> tuple[str, str]:
        """Read to the end; as `subprocess.run`, wait until nobody has its output open any more."""
        with ThreadPoolExecutor(2) as readers:
            printed = [readers.submit(_rest, file) for file in (self.stdout, self.stderr)]
            _, late = wait(printed, timeout)
            if late:
                os.kill(self.pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(["pgo-agent", *self.args], timeout)
            with self._status:
                self.returncode = int(self._status.readline())
            out, err = (p.result() for p in printed)
            return out, err


class _Warm:
    """A process that forks others (`warm_command_line.py`)."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command, lent = [sys.executable, "-m", "tests.agent.warm_command_line"], lending.lend()
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdin=theirs.fileno(), env=lent.env, pass_fds=lent.files
            )

    def begin(self, request: dict[str, Any]) -> Begun:
        (out, out_end), (err, err_end), (status, status_end) = os.pipe(), os.pipe(), os.pipe()
        socket.send_fds(self._ours, [json.dumps(request).encode()], [out_end, err_end, status_end])
        for fd in (out_end, err_end, status_end):
            os.close(fd)
        return Begun(request["args"], out, err, status)

    def end(self) -> None:
        self._ours.close()
        self._process.wait()


def _rest(file: TextIO) -> str:
    with file:
        return file.read()


@cache
def _started(_environment: tuple[tuple[str, str], ...]) -> _Warm:
    """One for each environment that Python, or what a box may read, is told from the start."""
    warm = _Warm()
    atexit.register(warm.end)
    return warm


FOR_CACHES = tuple(  # changes of `add`, for which the moves then propose launches alone
    (f"tl.load({x} + at, mask=inside)", f'tl.load({x} + at, mask=inside, eviction_policy="evict_first")')
    for x in ("x_ptr", "y_ptr")
)


def write(folder: Path, *changes: tuple[str, str], name: str = "add.py", alone: bool = False) -> Path:
    """The `add` target with some of its text replaced. `alone`: what runs of other tests built is not there."""
    text = ADD
    for old, new in changes:
        assert old in text, f"the target no longer holds {old!r}"
        text = text.replace(old, new)
    path = folder / name
    path.write_text(text)
    if not alone:
        lend(folder / ".pgo-agent")
    return path
