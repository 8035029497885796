"""Reports how many runs an interpreter process has finished, so that a person sees progress."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pgo_agent.sandbox import json_codec
from pgo_agent.sandbox.bundle import validate as rules
from pgo_agent.sandbox.judge.results.checks import Announce

REPORT_SECONDS = 12.0  # between two reports


@contextmanager
def watched(results: Path, seconds: float, announce: Announce) -> Iterator[None]:
    """Announce regularly how many runs a process has finished. The process may forge the number."""
    ended, began = threading.Event(), time.monotonic()

    def watch() -> None:
        while not ended.wait(REPORT_SECONDS):
            elapsed, left = time.monotonic() - began, began + seconds + 60.0 - time.monotonic()
            announce(f"interpreter: {_runs(results)} runs in {elapsed:.0f} s", left)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _runs(results: Path) -> int:
    try:
        return sum(len(json_codec.from_json(tuple[object, ...], r)) for r in rules.answer(results).values())
    except Exception:  # no results yet, or forged ones, which the comparison finds
        return 0
