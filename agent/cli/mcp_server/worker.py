"""The process that judges what agents submit: `python -m pgo_agent.agent.cli.mcp_server.worker WORKSPACE`.

It works on the open runs of a workspace, one at a time, and ends when there is none. There is at most one for a
workspace: a lock file, which ends with its process, says so. Servers and their clients may come and go meanwhile. The
events of its runs are in a file of the workspace, where servers read what it does.
"""

import fcntl
import json
import os
import sys
import time
from contextlib import closing
from pathlib import Path

from pgo_agent.agent.commands import optimize
from pgo_agent.agent.run import submissions
from pgo_agent.agent.run.events import Emit, Error, Event, GpuWaiting, Phase
from pgo_agent.agent.run.record import user_requests
from pgo_agent.agent.run.record.run import Run
from pgo_agent.agent.run.record.run_summary import FailedRun
from pgo_agent.agent.run.record.store import Store
from pgo_agent.sandbox.errors import EnvironmentFault, Fault
from pgo_agent.sandbox.isolation import lending

MODULE = "pgo_agent.agent.cli.mcp_server.worker"
LOCK, LOG, EVENTS = "mcp-worker.lock", "mcp-worker.log", "mcp-worker.jsonl"
PAUSE = 2.0  # seconds before another try, where the workspace or a GPU is taken
TAIL = 8192  # bytes of the events that are read for what it does


def is_running(root: Path) -> bool:
    """Whether a worker has the lock of a workspace."""
    lock = os.open(root / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        return not _locked(lock)
    finally:
        os.close(lock)


def doing(root: Path, run: str) -> str:
    """Return what the worker does for a run, or why it cannot go on, by its last events."""
    try:
        with (root / EVENTS).open("rb") as events:
            events.seek(max(0, events.seek(0, os.SEEK_END) - TAIL))
            lines = events.read().decode(errors="replace").splitlines()
    except OSError:
        return "it begins"
    return next(filter(None, (_said(line, run) for line in reversed(lines))), "it waits for its turn")


def _said(line: str, run: str) -> str:
    try:
        event = Event.from_json(json.loads(line))
    except ValueError:  # the first line may be cut
        return ""
    told = event.told if event.run == run else None
    if isinstance(told, Error):
        return f"{told.message}; {told.hint}"
    if isinstance(told, GpuWaiting):
        return f"GPU {told.index} is in use by {told.holder}: it is waited for"
    return told.doing if isinstance(told, Phase) else ""


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def main(root: Path) -> int:
    lock = os.open(root / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    if not _locked(lock):
        return 0
    lending.borrow()
    with closing(Store(root, create=False)) as store, (root / EVENTS).open("a", encoding="utf-8") as events:

        def emit(event: Event) -> None:
            events.write(json.dumps(event.as_json()) + "\n")
            events.flush()

        last = ""
        while run := _next(store, last):
            last = run.id
            _worked_on(store, run, emit)
    return 0


def _next(store: Store, last: str) -> Run | None:
    """Return the oldest open run that something waits for, the `last` one last of all; else the oldest."""
    runs = submissions.open_runs(store)
    waiting = sorted((r for r in runs if user_requests.waiting(store, r.id)), key=lambda r: r.id == last)
    return next(iter(waiting or runs), None)


def _worked_on(store: Store, run: Run, emit: Emit) -> None:
    """Go on with a run until it ends or gives way. A run that a person must fix fails; what is taken is waited for."""
    try:
        optimize.resume(run.id, store, emit)
    except EnvironmentFault as e:
        emit(Event(Error(e.message, e.hint), run.id))
        time.sleep(PAUSE)
    except Fault as e:
        emit(Event(Error(e.message, e.hint), run.id))
        store.set_state(run.id, "failed", FailedRun(f"{e.message}; {e.hint}"))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
