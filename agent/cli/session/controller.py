"""A session: one run, the process that works on it, and what is told of it. It knows no terminal: `terminal.py` does.

Its state is what the process last came to. Everything that a person asks of the run goes through the record, so it
holds whether the process lives, is paused, or dies.
"""

import threading
from collections.abc import Callable
from enum import StrEnum
from typing import Any

from pgo_agent.agent import text as printable
from pgo_agent.agent.cli.session.worker_process import Event, Running
from pgo_agent.agent.exit_codes import Exit
from pgo_agent.agent.run import steering
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

PATIENCE = 5.0  # seconds that a process may take to end what it is at: it is killed then, which loses as little
_INTERRUPTED = (Exit.INTERRUPTED, -2)  # -2: while it was still starting


class Stand(StrEnum):
    RUNNING = "running"
    PAUSING = "pausing"
    PAUSED = "paused"
    COMPLETE = "complete"
    REFUSED = "refused"  # it never began, and what is wrong was said


HINTS = {
    Stand.PAUSING: "it ends what it is at; Ctrl-C again leaves at once",
    Stand.PAUSED: "/resume goes on, /quit leaves",
    Stand.COMPLETE: "/show, /diff, /apply; /quit leaves",
    Stand.REFUSED: "",
}


class SessionController:
    """`job`: what a worker is told for a run, or, for an empty name, to begin one."""

    def __init__(self, store: Store, run: str, job: Callable[[str], str]) -> None:
        self.store, self.watch, self.code = store, Watch(store, run), int(Exit.INTERRUPTED)
        self.stand, self.leaving = Stand.PAUSED, False
        self.wake: Callable[[], None] = lambda: None  # what waits for a line, so that it looks whether it is to end
        self._job, self._progress, self._one = job, progress.Progress(Console(), live=False), threading.RLock()
        self._process: Running | None = None
        self._fault: Event = {}
        self._begun = False  # whether any process came as far as the run itself
        self._held: list[Event] | None = None  # while an editor has the terminal
        self._free = threading.Event()  # nothing has
        self._free.set()

    # what is told -----------------------------------------------------------------------------------------------------

    @property
    def run(self) -> Run:
        """Raises UsageFault while there is none."""
        if not self.watch.run:
            raise UsageFault("the run did not begin yet", "wait a moment")
        return self.store.run(self.watch.run)

    def say(self, text: str) -> None:
        Console().print(Text(printable.visible(text)))

    def tell_phases(self, wanted: bool) -> None:
        """A line for each phase, where no block tells it."""
        self._progress.phases = wanted

    def line(self) -> Text:
        """How it stands, in one line."""
        doing = self.watch.doing if self.stand is Stand.RUNNING else HINTS.get(self.stand, "")
        known = self.watch.glance()
        few = known.asked if known and self.stand is not Stand.COMPLETE else 0
        asked = f"{few} request{'s wait' if few > 1 else ' waits'}; " if few else ""
        return Text.assemble((f"{self.stand:<10}", "bold"), (asked, "yellow"), printable.line(doing or "starting"))

    def hold(self) -> None:
        """Tells nothing from here on."""
        self._free.clear()
        with self._one:
            self._held = []

    def release(self) -> None:
        """Tells what was held back."""
        with self._one:
            held, self._held = self._held or [], None
        for event in held:
            self._tell(event)
        self._free.set()

    def _event(self, event: Event) -> None:
        self.watch(event)
        self._begun = self._begun or event["type"] == "run.started"
        with self._one:
            if self._held is not None:
                self._held.append(event)
                return
        self._tell(event)

    def _tell(self, event: Event) -> None:
        if event["type"] == "error":
            self._fault = event
        else:
            self._progress(_printable(event))

    # the process ------------------------------------------------------------------------------------------------------

    def go(self) -> None:
        """Starts the process, or starts it again. Raises UsageFault where there is nothing to do."""
        if self.stand in (Stand.RUNNING, Stand.PAUSING):
            raise UsageFault(f"it is {self.stand}", "/pause stops it" if self.stand is Stand.RUNNING else "wait")
        if self.stand is Stand.COMPLETE:
            raise UsageFault(f"run {self.watch.run} is complete", "`pgo-agent session FILE` starts another")
        self.stand, self._fault, self.watch.doing = Stand.RUNNING, {}, ""
        self._process = Running(self._job(self.watch.run), self._event, self._ended)

    def pause(self) -> None:
        """Raises UsageFault where nothing runs."""
        if self.stand is not Stand.RUNNING or self._process is None:
            raise UsageFault(f"nothing runs: it is {self.stand}", HINTS.get(self.stand, ""))
        self.stand = Stand.PAUSING
        self._process.pause(PATIENCE)

    def interrupt(self) -> None:
        """Ctrl-C: pauses what runs; the next one leaves."""
        if self.stand is Stand.RUNNING:
            self.pause()
            self.say("pausing; Ctrl-C again leaves")
            return
        if self.stand is Stand.PAUSING and self._process is not None:
            self._process.kill()
        self.leave()

    def leave(self) -> None:
        self.leaving = True
        self.wake()

    def close(self) -> None:
        """Ends the process: as a pause does, or, where that takes long, at once."""
        if self._process is None:
            return
        try:
            if self.stand is Stand.RUNNING:
                self.pause()
            self._process.wait(2 * PATIENCE)
        except KeyboardInterrupt:
            self._process.kill()
            self._process.wait(PATIENCE)

    def _ended(self, code: int, said: str) -> None:
        self._free.wait()
        run = self.store.run(self.watch.run) if self.watch.run else None
        if run is not None and run.state in STATES:
            self._complete(run, code)
        elif self._fault:
            self._refused(run, code)
        else:
            asked, self.stand = self.stand is Stand.PAUSING, Stand.PAUSED
            if run is not None and run.state == "running":
                self.store.set_state(run.id, "interrupted")
            if not self.leaving:
                self.say(_stopped(int(Exit.INTERRUPTED) if asked else code, said))
        self.wake()

    def _complete(self, run: Run, code: int) -> None:
        self.stand, self.code = Stand.COMPLETE, code if code >= 0 else int(STATES[run.state])
        show.outcome(self.store, run.id, Console())
        if late := steering.unread(self.store, run.id):
            self.say(f"{len(late)} of your requests came after its end: /said lists them")

    def _refused(self, run: Run | None, code: int) -> None:
        """What a person must mend. Where nothing began, there is nothing to stay for."""
        begun = run is not None and self._begun
        self.stand, self.code = (Stand.PAUSED if begun else Stand.REFUSED), code
        self.leaving = self.leaving or not begun
        if begun:
            self.say(f"error: {self._fault['message']}\n  -> {self._fault['hint']}")

    @property
    def fault(self) -> Event:
        """What kept the run from beginning; empty when nothing did."""
        return self._fault if self.stand is Stand.REFUSED else {}


def _stopped(code: int, said: str) -> str:
    if code in _INTERRUPTED:
        return "paused; nothing that was recorded is lost. /resume goes on, /quit leaves"
    how = f"was ended by signal {-code}" if code < 0 else f"ended with {code}"
    last = printable.line((said.strip().splitlines() or [""])[-1])
    why = f" ({last})" if last else ""
    return f"the run's process {how}{why}; nothing that was recorded is lost. /resume goes on, /quit leaves"


def _printable(value: Any) -> Any:
    """The event with nothing in it that a terminal would obey."""
    if isinstance(value, str):
        return printable.visible(value)
    if isinstance(value, list):
        return [_printable(v) for v in value]
    return {k: _printable(v) for k, v in value.items()} if isinstance(value, dict) else value


def mark(text: str) -> str:
    """A line that a person typed, as it stays on the screen."""
    return f"[bold]>[/bold] {escape(printable.line(text, 1000))}"
