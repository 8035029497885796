"""Holds the process in which a run's loop works: starts it, hands on its events, pauses it, kills it.

It is in a process group of its own, so Ctrl-C at the terminal is the session's alone to understand.
"""

import json
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

Event = dict[str, Any]
SAID = 4000  # bytes of what it printed at last


class Running:
    """`told`: gets every event, in a thread. `ended`: gets the exit code and the last words, once, after them."""

    def __init__(self, job: str, told: Callable[[Event], None], ended: Callable[[int, str], None]) -> None:
        self._told, self._ended = told, ended
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed when the process is gone)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pgo_agent.agent.cli.session.worker", job],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def pause(self, seconds: float) -> None:
        """As Ctrl-C does; what is being built or judged may take so many seconds more."""
        self._process.send_signal(signal.SIGINT)
        late = threading.Timer(seconds, self.kill)
        late.daemon = True
        late.start()

    def kill(self) -> None:
        """At once. What was recorded is safe, and boxed processes die with it."""
        self._process.kill()

    def wait(self, seconds: float) -> bool:
        """Whether it ended, with everything that it said, within so many seconds."""
        self._reader.join(seconds)
        return not self._reader.is_alive()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with suppress(ValueError):  # cut off by a kill
                self._told(json.loads(line))
        code = self._process.wait()
        with self._errors as errors:
            errors.seek(0, 2)
            errors.seek(max(0, errors.tell() - SAID))
            said = errors.read().decode(errors="replace")
        self._ended(code, said)
