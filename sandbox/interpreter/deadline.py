"""Ends one run of a launcher at its deadline, and tells a kernel that is slow from one that computes for ever.

Relies on SIGALRM, which the main thread gets: a launcher runs there. What it was about when it was ended, `blocks.py`
knows. A process that keeps the signal from coming is ended by the box, with all that it had not written yet.
"""

import contextlib
import signal
import time
from collections.abc import Iterator

from pgo_agent.sandbox.interpreter.blocks import Blocks

SILENT = 5.0  # seconds in which a block that gets on touches memory, or ends
SHORTEST = 0.01  # seconds that a run gets in any case


class Overtime(Exception):
    """A run was ended for its time. `endless`: not for being slow."""

    def __init__(self, message: str, endless: bool) -> None:
        super().__init__(message)
        self.endless = endless


@contextlib.contextmanager
def within(seconds: float | None, blocks: Blocks) -> Iterator[None]:
    """Raises Overtime in what it surrounds after so many seconds; never where nobody says how many."""
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
