"""Counts the time in which all that a run has to do waits for somebody else's GPU: it is not the run's.

Relies on nothing. It has no lock of its own: whoever changes or reads it holds the one of `pool.py`.
"""

import time
from dataclasses import dataclass


@dataclass
class Standstill:
    pieces: int = 0  # threads that have work and wait for no other piece
    waiting: int = 0  # those of them that wait for a GPU
    _since: float | None = None  # when nothing went on any more
    _seconds: float = 0.0

    def note(self, held: bool) -> None:
        """Something changed. `held`: whether any GPU is at work for this run."""
        still = self.waiting > 0 and not held and self.waiting >= self.pieces
        now = time.monotonic()
        if self._since is not None and not still:
            self._seconds += now - self._since
        self._since = (self._since or now) if still else None

    @property
    def seconds(self) -> float:
        return self._seconds + (time.monotonic() - self._since if self._since is not None else 0.0)
