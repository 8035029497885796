"""Counts the time in which a whole run waits for a GPU that others hold: that time is not the run's.

Relies on nothing. It has no lock: callers hold the lock of `pool.py`.
"""

import time
from dataclasses import dataclass


@dataclass
class Standstill:
    """The clock of one run."""

    pieces: int = 0  # threads that have work and wait for no other piece
    waiting: int = 0  # those of them that wait for a GPU
    _since: float | None = None  # when nothing went on any more
    _seconds: float = 0.0

    def note(self, held: bool) -> None:
        """Note a change. `held`: whether any GPU works for this run."""
        still = self.waiting > 0 and not held and self.waiting >= self.pieces
        now = time.monotonic()
        if self._since is not None and not still:
            self._seconds += now - self._since
        self._since = (self._since or now) if still else None

    @property
    def seconds(self) -> float:
        return self._seconds + (time.monotonic() - self._since if self._since is not None else 0.0)
