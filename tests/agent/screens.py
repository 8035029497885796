"""Real terminals for tests: a session in tmux, whose screen is read as a person sees it, or one that can do nothing.

Each has a tmux server of its own, which ends with it. Keys are sent, and screens waited for.
"""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from shlex import join

import pytest

from tests.agent.command_line import command

SECONDS = 240.0
needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
ENDED = "ended with code"


class Screen:
    """`pgo-agent ARGS` in `cwd`, in a terminal of so many columns and rows; its end stays on the screen."""

    def __init__(self, *args: str | Path, cwd: Path, size: tuple[int, int] = (80, 24), **env: str) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="screen"))
        told = [f"{k}={v}" for k, v in ({"PYTHONPATH": os.environ.get("PYTHONPATH", "")} | env).items()]
        shell = f"env {join(told)} {join(command(*args))}; echo {ENDED} $?; sleep 600"
        width, height = map(str, size)
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", width, "-y", height, "-c", str(cwd), shell)
        self._tmux("set-option", "-g", "history-limit", "5000")

    def __enter__(self) -> "Screen":
        return self

    def __exit__(self, *_: object) -> None:
        self._tmux("kill-server")
        shutil.rmtree(self._folder)

    def _tmux(self, *args: str) -> str:
        socket = str(self._folder / "s")
        return subprocess.run(["tmux", "-S", socket, *args], capture_output=True, text=True, check=True).stdout

    @property
    def pid(self) -> int:
        """Of the shell that everything in this terminal is below."""
        return int(self._tmux("display-message", "-p", "#{pane_pid}"))

    @property
    def text(self) -> str:
        """What is on the screen now."""
        return self._tmux("capture-pane", "-p")

    @property
    def all(self) -> str:
        """With what scrolled off it; lines that the terminal wrapped are whole."""
        return self._tmux("capture-pane", "-p", "-J", "-S", "-5000")

    def type(self, line: str) -> None:
        self._tmux("send-keys", "-l", line)
        self._tmux("send-keys", "Enter")

    def press(self, key: str) -> None:
        self._tmux("send-keys", key)

    def until(self, seen: str | Callable[[str], bool], seconds: float = SECONDS) -> str:
        """Everything so far, once it holds what is waited for."""
        test = seen if callable(seen) else lambda text: seen in text
        end = time.monotonic() + seconds
        while not test(text := self.all):
            assert time.monotonic() < end, f"{seen!r} was not seen:\n{text}"
            time.sleep(0.1)
        return text

    def ended(self) -> int:
        """The exit code."""
        return int(self.until(ENDED).rpartition(ENDED)[2].split()[0])
