"""A judge process as its parent sees it: its pipes, its output, its end. It awaits commands once it has torch.

The CPU judge is forked from what tracers are forked from, where that works, and need not import torch again.
Does not know commands and verdicts: `gpu_judge.py` does. The process gets none of the user's keys.
"""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from pgo_agent.sandbox.isolation import bubblewrap, forkserver, unboxed

ENDING_SECONDS = 10.0  # between the end of its output and its own


class Process:
    """A process in its own session, started at once. `gpu`: its CUDA_VISIBLE_DEVICES; None: the CPU judge.

    `under`: a command that runs it, such as a memory checker; then every tensor is a separate allocation.
    `keeps`: open files that it inherits.
    """

    def __init__(self, python: str, gpu: str | None, under: Sequence[str] = (), keeps: Sequence[int] = ()) -> None:
        self._reading = threading.Lock()  # a reader of a closed file could hang, or read another file
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `end`)
        self._keeps = tuple(keeps)
        self._command = [*under, python, "-B", "-m", "pgo_agent.sandbox.judge", *([] if gpu is not None else ["--cpu"])]
        self._env = environment(gpu) | ({"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"} if under else {})
        self._begun = self._forked() if gpu is None and unboxed.possible(python, self._env) else self._anew()

    def _forked(self) -> "unboxed.Forked | _Anew":
        try:
            return unboxed.Forked(self._command[2:], self._env, self._log.fileno(), self._keeps)
        except forkserver.Cold:
            return self._anew()

    def _anew(self) -> "_Anew":
        return _Anew(self._command, self._env, self._log.fileno(), self._keeps)

    def keeps(self) -> Sequence[int]:
        """Return the numbers that the open files which it inherits have there, once it is there."""
        if isinstance(self._begun, unboxed.Forked):
            if self._begun.came(forkserver.START_SECONDS):
                return range(unboxed.KEPT, unboxed.KEPT + len(self._keeps))
            self._begun.end()
            self._begun = self._anew()
        return self._keeps

    def say(self, message: Mapping[str, object]) -> None:
        """Send one message. Raises BrokenPipeError when the process is gone."""
        stream: Any = self._begun.stdin
        try:
            stream.write(json.dumps(message).encode() + b"\n")
        except ValueError:
            raise BrokenPipeError from None  # closed by `end`, in another thread

    def line(self, deadline: float) -> bytes | None:
        """Return the next line; None at the deadline; a line without a newline when the process ended in it."""
        stream: Any = self._begun.stdout
        with self._reading, selectors.DefaultSelector() as selector:
            if stream.closed:
                return b""
            selector.register(stream, selectors.EVENT_READ)
            if not selector.select(max(0.0, deadline - time.monotonic())):
                return None
            return bytes(stream.readline())

    def status(self) -> int | None:
        """Return its exit status after a short wait; None while it still runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._begun.wait(ENDING_SECONDS)
        return None

    def printed(self) -> str:
        """Return the end of its output; nothing after `end`."""
        with self._reading:
            if self._log.closed:
                return ""
            self._log.seek(0, os.SEEK_END)
            self._log.seek(max(0, self._log.tell() - 2000))
            return self._log.read().decode(errors="replace").strip()

    def end(self) -> None:
        """Kill it. A thread that waits for its next line sees an ended process."""
        self._begun.end()
        if self._reading.acquire(timeout=ENDING_SECONDS):
            self._close()
            self._reading.release()

    def _close(self) -> None:
        for stream in (self._begun.stdin, self._begun.stdout, self._log):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()


class _Anew(subprocess.Popen[bytes]):
    """A process that is begun anew."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], log: int, keeps: Sequence[int]) -> None:
        super().__init__(
            command,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            bufsize=0,
            pass_fds=keeps,
            start_new_session=True,
        )

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.wait()


def environment(gpu: str | None) -> dict[str, str]:
    """Return the environment of a process on a GPU: this one's, without the user's keys."""
    extra = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    variables = os.environ | {
        "CUDA_VISIBLE_DEVICES": gpu or "",
        "PYTHONSAFEPATH": "1",
        "PYTHONPATH": os.pathsep.join([str(bubblewrap.import_root()), *extra]),
    }
    return {k: v for k, v in variables.items() if not k.endswith(("_KEY", "_TOKEN", "_SECRET"))}
