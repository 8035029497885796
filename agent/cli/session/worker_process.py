"""Controls the process in which a run's loop works: starts it, passes on its events, pauses it, kills it.

The process is in a process group of its own, so Ctrl-C at the terminal reaches the session alone.
"""

import json
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress

from pgo_agent.agent.run.events import Event

OUTPUT_BYTES = 4000  # of the end of its standard error


class Running:
    """A worker. `on_event` gets each event, in a thread; then `on_end` gets the exit code and the last output."""

    def __init__(self, job: str, on_event: Callable[[Event], None], on_end: Callable[[int, str], None]) -> None:
        self._on_event, self._on_end = on_event, on_end
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
        """Interrupt the process as Ctrl-C does; kill it when it has not ended after so many seconds."""
        self._process.send_signal(signal.SIGINT)
        late = threading.Timer(seconds, self.kill)
        late.daemon = True
        late.start()

    def kill(self) -> None:
        """Kill the process at once. What was recorded is safe, and boxed processes die with it."""
        self._process.kill()

    def wait(self, seconds: float) -> bool:
        """Return whether it ended within so many seconds, and all its events were passed on."""
        self._reader.join(seconds)
        return not self._reader.is_alive()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with suppress(ValueError):  # cut off by a kill
                self._on_event(Event.from_json(json.loads(line)))
        code = self._process.wait()
        with self._errors as errors:
            errors.seek(0, 2)
            errors.seek(max(0, errors.tell() - OUTPUT_BYTES))
            output = errors.read().decode(errors="replace")
        self._on_end(code, output)
