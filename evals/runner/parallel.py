"""Makes the runs of a plan by several processes at once: each is this very command, with a workspace of its own.

Much of a run waits for compilers, or for a GPU that another has. The workspaces lie in the one that was named, and keep
what they build there, so that it is there for all; which process makes which run is settled by the file of results.
Runs that take something over from each other, such as a baseline, share the one that was named.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import IO, Any

from pgo_agent.agent.exit_codes import Exit
from pgo_agent.agent.run.events import Emit, Event, Phase
from pgo_agent.agent.run.record.database import SHARED
from pgo_agent.agent.run.record.store import Store
from pgo_agent.evals.runner.results import Results
from pgo_agent.sandbox.isolation import lending

FOLDER = "at-once"  # of the workspace: its own workspaces
LAST = ("ablation.completed", "nightly.completed")  # events about all runs: this process emits them
Process = subprocess.Popen[str]


def run(count: int, results: Results[Any], store: Store, emit: Emit, json_lines: bool, shared: bool = False) -> Exit:
    """Make every run that has no result yet, by at most `count` processes. Gives DONE, or why a run has none.

    `shared`: their workspace is this one. What they print is passed on as it comes: events with their workspace, or
    lines behind the name of the process. What a process leaves that is killed, the others make. Raises EnvironmentFault
    where a run is active in the workspace.
    """
    names = [str(n + 1) for n in range(min(count, len(results.missing)))]
    places = [store.root if shared else _workspace(store, n) for n in names]
    emit(Event(Phase("runs", doing=f"{len(names)} processes make the runs of {results.file}")))
    with (
        store.active(f"of {len(names)} processes at once", shared),
        _processes(places, json_lines, shared) as processes,
    ):
        codes = _heard(dict(zip(names, processes, strict=True)), _telling(emit, json_lines, shared))
    results.read_again()
    if not results.missing:
        return Exit.DONE
    return next((Exit(c) for c in codes if c in [*Exit] and c), Exit.ENVIRONMENT)  # no code at all: it was killed


def _workspace(store: Store, name: str) -> Path:
    place = store.root / FOLDER / name
    store.contents.lend(place)
    return place


@contextmanager
def _processes(workspaces: Sequence[Path], json_lines: bool, shared: bool) -> Iterator[list[Process]]:
    """Start a process for each workspace. What still runs at the end of the block is interrupted, as by Ctrl-C."""
    running: list[Process] = []
    try:
        for place in workspaces:
            running.append(_begun(place, json_lines, shared))
        yield running
    finally:
        for process in running:
            _closed(process.stdin)
        for process in running:
            process.wait()


def _begun(workspace: Path, json_lines: bool, shared: bool) -> Process:
    """Start this command in a workspace. Ctrl-C does not reach it; the end of this process does."""
    arguments, lent = [*sys.argv[1:], "--at-once", "1", "--store", str(workspace)], lending.lend()
    return subprocess.Popen(
        [sys.executable, "-m", "pgo_agent.agent.cli.parent_watch", *arguments],
        env=lent.env | ({SHARED: str(workspace.resolve())} if shared else {}),
        pass_fds=lent.files,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE if json_lines else subprocess.DEVNULL,
        stderr=None if json_lines else subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )


def _closed(pipe: IO[str] | None) -> None:
    if pipe is not None:
        pipe.close()


def _heard(processes: Mapping[str, Process], tell: Callable[[str, str], None]) -> list[int]:
    """Pass on each line with the name of its process; return the exit statuses once all have ended."""

    def one(name: str) -> int:
        process = processes[name]
        for line in process.stdout or process.stderr or ():
            tell(name, line.rstrip("\n"))
        return process.wait()

    threads = ThreadPoolExecutor(len(processes))
    try:
        listening = [threads.submit(one, name) for name in processes]
        wait(listening, return_when=FIRST_EXCEPTION)  # an error while passing lines on ends all of them
        return [done.result() for done in listening if done.done()]
    finally:
        threads.shutdown(wait=False)  # after Ctrl-C they end with their processes, which this waits for no longer


def _telling(emit: Emit, json_lines: bool, shared: bool = False) -> Callable[[str, str], None]:
    lock = Lock()

    def tell(name: str, line: str) -> None:
        with lock:
            if not json_lines:
                print(f"{name}| {line}", file=sys.stderr, flush=True)
                return
            with suppress(ValueError):  # cut off by a kill
                if not (event := Event.from_json(json.loads(line))).type.endswith(LAST):
                    emit(event if shared else replace(event, workspace=f"{FOLDER}/{name}"))

    return tell
