"""A process of our own that no box holds and that need not import torch: forked from what tracers are forked from.

Whoever began it uses it as a `subprocess.Popen`. Its environment, folder and open files are those that it is given.
Where it cannot be forked, `came` says so, and a process is begun the long way. What happens at the other end is in
`forkserver_main.py`.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from pgo_agent.sandbox.isolation import box, forkserver

MODULE = "pgo_agent.sandbox.tracer"  # whose libraries a judge needs
KEPT = 3  # the number that the first open file has there which it keeps
AT_IMPORT = ("LD_", "OMP_", "GOMP_", "KMP_", "MKL_", "TORCH", "PYTORCH", "TRITON_")  # of variables that are read then
SET_BY_TORCH = {"TORCHINDUCTOR_CACHE_DIR"}  # in a process that compiled something


def possible(python: str, env: Mapping[str, str]) -> bool:
    """Whether a process of that interpreter may have imported its libraries before it had this environment."""
    read = {name for name in env if name.startswith(AT_IMPORT)} - SET_BY_TORCH
    return python == sys.executable and not read


class Forked:
    """`python WORDS` in a session of its own. It is there as soon as the libraries are."""

    def __init__(
        self, words: Sequence[str], env: Mapping[str, str], log: int, keeps: Sequence[int], module: str = MODULE
    ) -> None:
        """`module`: it has the libraries of that one. Raises forkserver.Cold."""
        (its_input, ours), (output, its_output) = os.pipe(), os.pipe()
        self.stdin, self.stdout = os.fdopen(ours, "wb", 0), os.fdopen(output, "rb", 0)
        self._leader = self._ended = 0  # of its session; an open file that tells its end (pidfd); 0: not there yet
        self._code: int | None = None
        self._lock = threading.Lock()
        request = {"words": list(words), "env": dict(env), "cwd": str(Path.cwd())}
        try:
            told = box.Box("bubblewrap").ask(module, request, (its_input, its_output, log, *keeps))
        except forkserver.Cold:
            self.stdin.close()
            self.stdout.close()
            raise
        finally:
            os.close(its_input)
            os.close(its_output)
        self._told = os.fdopen(told, "rb", 0)

    def came(self, seconds: float) -> bool:
        """Wait until it is there; false where it never will be."""
        with self._lock:
            if not self._leader and self._code is None and (said := self._line(seconds)):
                self._leader, process = map(int, said.split())
                self._ended = os.pidfd_open(process)
            return self._leader != 0

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit status. Raises subprocess.TimeoutExpired."""
        with self._lock:
            if self._code is None:
                self._code = int(self._line(timeout) or -signal.SIGKILL)
            return self._code

    def end(self) -> None:
        """Kill it and its session. Until then its leader lives, and the number of its session is nobody else's."""
        if self._leader:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._leader, signal.SIGKILL)
            self.wait()
            _readable(self._ended, None)
            os.close(self._ended)
        with self._lock:
            self._leader, self._code = 0, -signal.SIGKILL if self._code is None else self._code
            self._told.close()

    def _line(self, seconds: float | None) -> bytes:
        """Return what its leader says next; nothing when that is gone."""
        if not _readable(self._told.fileno(), seconds):
            raise subprocess.TimeoutExpired("a forked process", seconds or 0.0)
        return self._told.readline()


def _readable(file: int, seconds: float | None) -> bool:
    ready = select.poll()
    ready.register(file, select.POLLIN)
    return bool(ready.poll(None if seconds is None else 1000 * max(0.0, seconds)))
