"""Says, while the interpreter's process works, how many runs it has left: a person sees that it gets on."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pgo_agent.sandbox.bundle import validate as rules
from pgo_agent.sandbox.judge.results.checks import Announce

TELLING = 30.0  # seconds between two words about how far it is


@contextmanager
def watched(results: Path, seconds: float, announce: Announce) -> Iterator[None]:
    """Announces every few seconds how many runs a process has left, which may forge that."""
    ended, began = threading.Event(), time.monotonic()

    def watch() -> None:
        while not ended.wait(TELLING):
            told, left = time.monotonic() - began, began + seconds + 60.0 - time.monotonic()
            announce(f"interpreter: {_runs(results)} runs in {told:.0f} s", left)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _runs(results: Path) -> int:
    try:
        return sum(len(r) for r in rules.answer(results).values())
    except Exception:  # nothing is there yet, or what is there is forged: whoever compares will say so
        return 0
