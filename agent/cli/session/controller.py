"""A session: one run, the process that works on it, and what is printed about it. `terminal.py` knows the terminal.

Its state is what the process did last. All requests of a person go through the record, so they hold whether the
process lives, is paused, or dies.
"""

import threading
from collections.abc import Callable
from enum import StrEnum
from typing import Any

from pgo_agent.agent import text as printable
from pgo_agent.agent.cli.session.worker_process import Running
from pgo_agent.agent.exit_codes import Exit
from pgo_agent.agent.run import steering
from pgo_agent.agent.run.events import Error, Event, RunStarted
from pgo_agent.agent.run.record.run import Run
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import STATES
from pgo_agent.agent.views import show
from pgo_agent.agent.views.live import progress
from pgo_agent.agent.views.live.refresh import Watch
from pgo_agent.sandbox.errors import UsageFault
from rich.console import Console
from rich.markup import escape
from rich.text import Text

PATIENCE = 5.0  # seconds that a process may take to end its work; then it is killed, which loses nothing more
_INTERRUPTED = (Exit.INTERRUPTED, -2)  # -2: while it was still starting


class SessionState(StrEnum):
    RUNNING = "running"
    PAUSING = "pausing"
    PAUSED = "paused"
    COMPLETE = "complete"
    REFUSED = "refused"  # it never began, and the reason was printed


HINTS = {
    SessionState.PAUSING: "it ends what it is at; Ctrl-C again leaves at once",
    SessionState.PAUSED: "/resume goes on, /quit leaves",
    SessionState.COMPLETE: "/show, /diff, /apply; /quit leaves",
    SessionState.REFUSED: "",
}


class SessionController:
    """Hold one session. `job`: the worker's job for a run, or, for an empty name, for a new run."""

    def __init__(self, store: Store, run: str, job: Callable[[str], str]) -> None:
        self.store, self.watch, self.code = store, Watch(store, run), int(Exit.INTERRUPTED)
        self.state, self.leaving = SessionState.PAUSED, False
        self.wake: Callable[[], None] = lambda: None  # wakes who waits for a line, to check whether to end
        self._job, self._progress, self._lock = job, progress.Progress(Console(), live=False), threading.RLock()
        self._process: Running | None = None
        self._fault: Error | None = None
        self._begun = False  # whether any process started the run itself
        self._held: list[Event] | None = None  # events that wait while an editor has the terminal
        self._free = threading.Event()  # set while no editor has it
        self._free.set()

    # output -----------------------------------------------------------------------------------------------------------

    @property
    def run(self) -> Run:
        """Return the run. Raises UsageFault while there is none."""
        if not self.watch.run:
            raise UsageFault("the run did not begin yet", "wait a moment")
        return self.store.run(self.watch.run)

    def say(self, text: str) -> None:
        Console().print(Text(printable.visible(text)))

    def tell_phases(self, wanted: bool) -> None:
        """Print a line for each phase, when no live block shows it."""
        self._progress.phases = wanted

    def line(self) -> Text:
        """Return the state of the session in one line."""
        doing = self.watch.doing if self.state is SessionState.RUNNING else HINTS.get(self.state, "")
        snapshot = self.watch.glance()
        few = snapshot.asked if snapshot and self.state is not SessionState.COMPLETE else 0
        asked = f"{few} request{'s wait' if few > 1 else ' waits'}; " if few else ""
        return Text.assemble((f"{self.state:<10}", "bold"), (asked, "yellow"), printable.line(doing or "starting"))

    def hold(self) -> None:
        """Print nothing until `release`."""
        self._free.clear()
        with self._lock:
            self._held = []

    def release(self) -> None:
        """Print what was held back."""
        with self._lock:
            events, self._held = self._held or [], None
        for event in events:
            self._show(event)
        self._free.set()

    def _event(self, event: Event) -> None:
        self.watch(event)
        self._begun = self._begun or isinstance(event.told, RunStarted)
        with self._lock:
            if self._held is not None:
                self._held.append(event)
                return
        self._show(event)

    def _show(self, event: Event) -> None:
        if isinstance(event.told, Error):
            self._fault = event.told
        else:
            self._progress(_printable(event))

    # the process ------------------------------------------------------------------------------------------------------

    def go(self) -> None:
        """Start the process, or start it again. Raises UsageFault when there is nothing to do."""
        if self.state in (SessionState.RUNNING, SessionState.PAUSING):
            raise UsageFault(f"it is {self.state}", "/pause stops it" if self.state is SessionState.RUNNING else "wait")
        if self.state is SessionState.COMPLETE:
            raise UsageFault(f"run {self.watch.run} is complete", "`pgo-agent session FILE` starts another")
        self.state, self._fault, self.watch.doing = SessionState.RUNNING, None, ""
        self._process = Running(self._job(self.watch.run), self._event, self._ended)

    def pause(self) -> None:
        """Pause the process. Raises UsageFault when nothing runs."""
        if self.state is not SessionState.RUNNING or self._process is None:
            raise UsageFault(f"nothing runs: it is {self.state}", HINTS.get(self.state, ""))
        self.state = SessionState.PAUSING
        self._process.pause(PATIENCE)

    def interrupt(self) -> None:
        """Handle Ctrl-C: the first one pauses, the next one leaves."""
        if self.state is SessionState.RUNNING:
            self.pause()
            self.say("pausing; Ctrl-C again leaves")
            return
        if self.state is SessionState.PAUSING and self._process is not None:
            self._process.kill()
        self.leave()

    def leave(self) -> None:
        self.leaving = True
        self.wake()

    def close(self) -> None:
        """End the process as a pause does, or, when that takes long, at once."""
        if self._process is None:
            return
        try:
            if self.state is SessionState.RUNNING:
                self.pause()
            self._process.wait(2 * PATIENCE)
        except KeyboardInterrupt:
            self._process.kill()
            self._process.wait(PATIENCE)

    def _ended(self, code: int, output: str) -> None:
        self._free.wait()
        run = self.store.run(self.watch.run) if self.watch.run else None
        if run is not None and run.state in STATES:
            self._complete(run, code)
        elif self._fault:
            self._refused(run, code)
        else:
            asked, self.state = self.state is SessionState.PAUSING, SessionState.PAUSED
            if run is not None and run.state == "running":
                self.store.set_state(run.id, "interrupted")
            if not self.leaving:
                self.say(_stopped(int(Exit.INTERRUPTED) if asked else code, output))
        self.wake()

    def _complete(self, run: Run, code: int) -> None:
        self.state, self.code = SessionState.COMPLETE, code if code >= 0 else int(STATES[run.state])
        show.outcome(self.store, run.id, Console())
        if late := steering.unread(self.store, run.id):
            self.say(f"{len(late)} of your requests came after its end: /said lists them")

    def _refused(self, run: Run | None, code: int) -> None:
        """Report what a person must fix. A session whose run did not begin ends."""
        begun = run is not None and self._begun
        self.state, self.code = (SessionState.PAUSED if begun else SessionState.REFUSED), code
        self.leaving = self.leaving or not begun
        if begun and self._fault:
            self.say(f"error: {self._fault.message}\n  -> {self._fault.hint}")

    @property
    def fault(self) -> Error | None:
        """Return the fault that kept the run from beginning; None when it began."""
        return self._fault if self.state is SessionState.REFUSED else None


def _stopped(code: int, output: str) -> str:
    if code in _INTERRUPTED:
        return "paused; nothing that was recorded is lost. /resume goes on, /quit leaves"
    how = f"was ended by signal {-code}" if code < 0 else f"ended with {code}"
    last = printable.line((output.strip().splitlines() or [""])[-1])
    why = f" ({last})" if last else ""
    return f"the run's process {how}{why}; nothing that was recorded is lost. /resume goes on, /quit leaves"


def _printable(value: Any) -> Any:
    """Return the event without control characters."""
    if isinstance(value, str):
        return printable.visible(value)
    if isinstance(value, list):
        return [_printable(v) for v in value]
    return {k: _printable(v) for k, v in value.items()} if isinstance(value, dict) else value


def mark(text: str) -> str:
    """Return a line that a person typed, as it stays on the screen."""
    return f"[bold]>[/bold] {escape(printable.line(text, 1000))}"
