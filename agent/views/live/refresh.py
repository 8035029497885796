"""Keeps a run at a glance up to date while somebody looks: from its events, and from the record without events.

`lines` may be called as often as wanted. A record that cannot be read for a moment changes nothing on the screen.
Timelines are read from the content store in a thread of their own.
"""

import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from pgo_agent.agent.run.events import Event, Phase, ProfileCompleted
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.views.live import dashboard, snapshot
from pgo_agent.agent.views.live.snapshot import Snapshot
from pgo_agent.sandbox.errors import Fault
from rich.text import Text

SOON, LATER = 0.25, 1.0  # seconds between reads of the record: after an event, and without one
STRIPS = 200  # columns of a timeline at most
_THINKING = ("asking ", "waiting ")  # phases in which the run's clock stands still


class Watch:
    """Watches the run of the events, or a named one."""

    def __init__(self, store: Store, run: str = "") -> None:
        self.store, self.run = store, run
        self.doing, self.since = "", time.monotonic()
        self._latest: Snapshot | None = None
        self._read = self._counted = 0.0  # monotonic seconds: of the last read, and of the last new `Snapshot.seconds`
        self._stale, self._lock = True, threading.Lock()
        self._strips: Sequence[Text] = ()
        self._width = dashboard.WIDTH

    def __call__(self, event: Event) -> None:
        self.run, self._stale = event.run or self.run, True
        if isinstance(event.told, Phase):
            self.doing, self.since = event.told.doing, time.monotonic()
        if isinstance(event.told, ProfileCompleted) and event.told.passes.get(snapshot.TIMELINE) == "":
            threading.Thread(target=self._take_strips, daemon=True).start()

    def glance(self) -> Snapshot | None:
        """Return the run at a glance; None before there is anything in the record."""
        with self._lock:
            old = time.monotonic() - self._read
            if self.run and (old > LATER or (self._stale and old > SOON)):
                self._stale, self._read = False, time.monotonic()
                with suppress(Fault):
                    self._take()
        return self._latest

    def lines(self, width: int, height: int, ascii_only: bool = False) -> list[Text]:
        """Return the block; empty without room for it, or without a record."""
        self._width = width
        glance = self.glance()
        if glance is None or width < dashboard.WIDTH or height < 1:
            return []
        return dashboard.lines(glance, self._strips, width, height, ascii_only, self.running())

    def running(self) -> float:
        """Return the seconds that the run took since the record last stored its time."""
        thinks = self.doing.startswith(_THINKING)
        going = self._latest is not None and self._latest.state == "running" and not thinks
        return time.monotonic() - self._counted if going else 0.0

    def _take(self) -> None:
        taken = snapshot.take(self.store, self.run)
        if self._latest is None or taken.seconds != self._latest.seconds:
            self._counted = time.monotonic()
        self._latest = taken

    def _take_strips(self) -> None:
        from pgo_agent.agent.views.live import profile_view

        with suppress(Exception):  # a drawing that fails must not end a run
            self._strips = profile_view.strips(self.store, self.run, min(STRIPS, self._width - dashboard.LABEL))
