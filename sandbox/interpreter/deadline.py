"""Ends one run of a launcher at its deadline, and distinguishes a slow kernel from an endless one.

Relies on SIGALRM, which the main thread gets: a launcher runs there. `blocks.py` reports its progress. A process that
blocks the signal is ended by the box, and loses what it had not written yet.
"""

import contextlib
import signal
import time
from collections.abc import Iterator

from pgo_agent.sandbox.interpreter.blocks import Blocks

SILENT = 5.0  # seconds without memory access or end of a block that make it endless
SHORTEST = 0.01  # least seconds of a run


class Overtime(Exception):
    """A run was ended at its deadline. `endless`: it was not just slow."""

    def __init__(self, message: str, endless: bool) -> None:
        super().__init__(message)
        self.endless = endless


@contextlib.contextmanager
def within(seconds: float | None, blocks: Blocks) -> Iterator[None]:
    """Raise Overtime in its body after `seconds`; None: no limit."""
    if seconds is None:
        yield
        return
    began = time.monotonic()

    def over(*_: object) -> None:
        raise _overtime(time.monotonic() - began, blocks)

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, SHORTEST))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def _overtime(seconds: float, blocks: Blocks) -> Overtime:
    if not blocks.place:
        return Overtime(f"kernel() itself did not end in {seconds:.0f} s", endless=True)
    endless = time.monotonic() - blocks.touched > SILENT
    about = f"{blocks.place} computes for over {SILENT:.0f} s without an end"
    progress = about if endless else f"it had come to {blocks.place}"
    return Overtime(f"did not end in {seconds:.0f} s: {progress}", endless)
