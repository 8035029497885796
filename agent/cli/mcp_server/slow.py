"""Commands that outlast a call: each runs in a process of its own, and the same call again gets its answer.

Clients end a call after 10 to 60 seconds, so a call waits a little and then says that the work goes on. What a command
prints is its answer, so an agent reads what a person would. Decides nothing.
"""

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.isolation import lending

POLL = 0.1
MOST = 4  # commands at a time
LONGEST = 60_000  # characters of an answer; the middle of a longer one is left out
WIDTH = "160"  # columns


@dataclass(frozen=True)
class Said:
    """What a command printed."""

    state: str  # working: call again with the same arguments; done
    code: int | None  # its exit code: 0 is well
    text: str


@dataclass
class _Running:
    process: subprocess.Popen[bytes]
    output: Path
    said: Said | None = None  # once it has ended: several calls may wait for it


class Commands:
    """The commands of one server, by their arguments. They end with it."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock = folder, threading.Lock()
        self._running: dict[tuple[str, ...], _Running] = {}

    def run(self, arguments: Sequence[str], seconds: float) -> Said:
        """Start `pgo-agent ARGUMENTS`, or find it running, and wait so many seconds for its end.

        Raises UsageFault for arguments that no process can be given, and where too many commands are at work.
        """
        key, until = tuple(arguments), time.monotonic() + seconds
        with self._lock:
            if key not in self._running:
                self._running[key] = self._begun(key)
            running = self._running[key]
        while running.process.poll() is None and time.monotonic() < until:
            time.sleep(POLL)
        with self._lock:
            return self._said(key, running)

    def knows(self, arguments: Sequence[str]) -> bool:
        """Return whether a command of these arguments is at work, or its answer was not read."""
        with self._lock:
            return tuple(arguments) in self._running

    def _said(self, key: tuple[str, ...], running: _Running) -> Said:
        if running.said is not None:
            return running.said
        code = running.process.poll()  # before its output is read: of what has ended, that is whole
        text = _cut(running.output.read_text(errors="replace"))
        if code is None:
            begun = f"`pgo-agent {key[0]}` is at work: call again with the same arguments\n"
            return Said("working", None, begun + text)
        running.said = Said("done", code, text)
        self._running.pop(key, None)
        running.output.unlink(missing_ok=True)
        return running.said

    def close(self) -> None:
        """End what still runs, as Ctrl-C does."""
        with self._lock:
            for running in self._running.values():
                running.process.terminate()
                running.process.communicate()
                running.output.unlink(missing_ok=True)
            self._running.clear()

    def _begun(self, arguments: Sequence[str]) -> _Running:
        at_work = sum(r.process.poll() is None for r in self._running.values())
        if at_work >= MOST:
            raise UsageFault(f"{at_work} commands are at work already", "read their answers first")
        lent = lending.lend()  # the server has them for all of its commands, and for its worker
        with tempfile.NamedTemporaryFile(prefix="pgo-mcp-", suffix=".txt", delete=False) as output:
            try:
                process = subprocess.Popen(
                    [sys.executable, "-m", "pgo_agent.agent.cli.parent_watch", *arguments],
                    cwd=self._folder,
                    stdin=subprocess.PIPE,  # nothing is written: the command ends with this process, however that dies
                    stdout=output,
                    stderr=output,
                    env=lent.env | {"COLUMNS": WIDTH, "NO_COLOR": "1"},
                    pass_fds=lent.files,
                )
            except (OSError, ValueError) as e:  # longer than the system allows, or with a zero byte
                Path(output.name).unlink()
                raise UsageFault(f"`pgo-agent {arguments[0]}` cannot be started: {e}", "give shorter text") from None
        return _Running(process, Path(output.name))


def _cut(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    half = LONGEST // 2
    return f"{text[:half]}\n[{len(text) - LONGEST:,} characters are left out here]\n{text[-half:]}"
