"""Keeps a run at a glance up to date while somebody looks: by its events, and by the record where there are none.

Whoever draws calls `lines` as often as it likes. A record that cannot be read for a moment changes nothing on the
screen. Timelines are taken from the content store in a thread of their own.
"""

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.views.live import dashboard, snapshot
from pgo_agent.agent.views.live.snapshot import Snapshot
from pgo_agent.sandbox.errors import Fault
from rich.text import Text

SOON, LATER = 0.25, 1.0  # seconds between looks at the record: after an event, and without one
STRIPS = 200  # columns that a timeline is taken for at most
_THINKING = ("asking ", "waiting ")  # for what the run's clock stands still


class Watch:
    """The run that the events are of, or that is named."""

    def __init__(self, store: Store, run: str = "") -> None:
        self.store, self.run = store, run
        self.doing, self.since = "", time.monotonic()
        self._known: Snapshot | None = None
        self._read = self._told = 0.0
        self._stale, self._one = True, threading.Lock()
        self._strips: Sequence[Text] = ()
        self._width = dashboard.WIDTH

    def __call__(self, event: dict[str, Any]) -> None:
        self.run, self._stale = event.get("run", self.run), True
        if event["type"] == "phase":
            self.doing, self.since = event["doing"], time.monotonic()
        if event["type"] == "profile.completed" and event["passes"].get(snapshot.TIMELINE) == "":
            threading.Thread(target=self._take_strips, daemon=True).start()

    def glance(self) -> Snapshot | None:
        """None before there is anything in the record."""
        with self._one:
            old = time.monotonic() - self._read
            if self.run and (old > LATER or (self._stale and old > SOON)):
                self._stale, self._read = False, time.monotonic()
                with suppress(Fault):
                    self._take()
        return self._known

    def lines(self, width: int, height: int, ascii_only: bool = False) -> list[Text]:
        """The block; nothing where there is no room for it, or nothing to tell."""
        self._width = width
        found = self.glance()
        if found is None or width < dashboard.WIDTH or height < 1:
            return []
        return dashboard.lines(found, self._strips, width, height, ascii_only, self.running())

    def running(self) -> float:
        """Seconds that the run took since the record was told how many."""
        thinks = self.doing.startswith(_THINKING)
        going = self._known is not None and self._known.state == "running" and not thinks
        return time.monotonic() - self._told if going else 0.0

    def _take(self) -> None:
        found = snapshot.take(self.store, self.run)
        if self._known is None or found.seconds != self._known.seconds:
            self._told = time.monotonic()
        self._known = found

    def _take_strips(self) -> None:
        from pgo_agent.agent.views.live import profile_view

        with suppress(Exception):  # a drawing is no reason to end a run
            self._strips = profile_view.strips(self.store, self.run, min(STRIPS, self._width - dashboard.LABEL))
