"""What every command does around its work: print faults for people, open and close the workspace, show events."""

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

if TYPE_CHECKING:
    from pgo_agent.agent.run.events import Emit, Event
    from pgo_agent.agent.run.record.store import Store


class faults:  # noqa: N801 (used as a context manager)
    """Print a Fault for a person, and as an event with `--json`, and exit with its code."""

    def __init__(self, json_lines: bool = False, feed: Any = None) -> None:
        self.json_lines, self.feed = json_lines, feed

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: Any, error: Any, _trace: Any) -> None:
        from pgo_agent.agent.exit_codes import exit_code
        from pgo_agent.agent.run.events import Error, Event
        from pgo_agent.sandbox.errors import Fault

        if self.feed is not None:
            self.feed.close()
        if isinstance(error, Fault):
            if self.json_lines:
                from pgo_agent.agent.views.live.progress import JsonLines

                JsonLines()(Event(Error(error.message, error.hint)))
            print(f"error: {error}", file=sys.stderr)
            raise typer.Exit(int(exit_code(error))) from None


def must_be_a_terminal(hint: str) -> None:
    """Raise UsageFault unless standard input and output are a terminal."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        from pgo_agent.sandbox.errors import UsageFault

        raise UsageFault("a session needs a terminal", hint)


@contextlib.contextmanager
def opened(root: Path, create: bool = False) -> "Iterator[Store]":
    """Open the store of a workspace, and close it afterwards."""
    from pgo_agent.agent.run.record.store import Store

    with contextlib.closing(Store(root, create)) as store:
        yield store


def interrupted(again: str) -> NoReturn:
    """Exit at once: no thread is waited for, and boxed processes die with this one. `again`: how to go on."""
    from pgo_agent.agent.exit_codes import Exit

    print(f"interrupted; nothing is lost. Go on with: {again}", file=sys.stderr, flush=True)
    os._exit(Exit.INTERRUPTED)


def run(
    json_lines: bool,
    store: Path,
    create: bool,
    go: Callable[["Store", "Emit"], int],
    tell: Callable[[], None] | None = None,
    again: str = "pgo-agent resume {run}",
) -> None:
    """Call `go` with the store and the feed of events, and exit with the code that it returns.

    `tell`: prints the result for a person; by default the result of the run. `again`: the command that goes on after
    Ctrl-C. SIGUSR1 makes the process print the stack of each of its threads.
    """
    from pgo_agent.agent.views.live.progress import JsonLines, Progress

    signal.signal(signal.SIGUSR1, _print_stacks)
    feed = JsonLines() if json_lines else Progress()
    last: dict[str, str] = {}  # type of event -> its run

    def emit(event: "Event") -> None:
        last[event.type] = event.run
        feed(event)

    with faults(json_lines, feed), opened(store, create) as record:
        feed.look_at(record)
        try:
            code = go(record, emit)
        except KeyboardInterrupt:
            feed.close()
            interrupted(again.format(run=last.get("run.started", "last")))
        feed.close()
        if not json_lines:
            _show_result(record, last.get("run.completed"), tell)
        raise typer.Exit(int(code))


def _show_result(record: "Store", done: str | None, tell: Callable[[], None] | None) -> None:
    """Print the result for a person. `done`: the run that completed."""
    if tell is not None:
        tell()
    elif done:
        from pgo_agent.agent.views import show as shown

        shown.outcome(record, done)


def _print_stacks(*_: Any) -> None:
    """Print the stack of each thread. Unlike faulthandler it runs between bytecodes, so what it reads is consistent."""
    import threading
    import traceback

    names = {t.ident: t.name for t in threading.enumerate()}
    each = (
        f"thread {names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
    )
    os.write(2, "\n".join(each).encode(errors="replace"))  # print() may be what was interrupted
