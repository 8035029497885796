"""The process in which the loop of a session runs: `python -m pgo_agent.agent.cli.session.worker JOB`, events on
stdout.

It ends when the session ends (`parent_watch.py`), and its run can be resumed. Requests of a person reach it through
the record.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import typer
from pgo_agent.agent.cli import parent_watch, runner
from pgo_agent.agent.commands import optimize
from pgo_agent.agent.exit_codes import Exit
from pgo_agent.agent.run.events import Emit
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.sandbox.json_codec import Record


@dataclass(frozen=True)
class Job(Record):
    """What a worker is to do: go on with `run`, or, when that is empty, start a run of `file`."""

    store: str
    file: str
    asked: RunSettings
    run: str


def job(store: Path, file: Path, asked: RunSettings, run: str) -> str:
    """Return a Job as the worker takes it from its command line."""
    return json.dumps(Job(str(store), str(file), asked, run).as_json())


def main(text: str) -> int:
    job = Job.from_json(json.loads(text))
    parent_watch.hold()

    def go(store: Store, emit: Emit) -> int:
        if job.run:
            return optimize.resume(job.run, store, emit)
        return optimize.start(Path(job.file), job.asked, store, emit)

    try:
        runner.run(True, Path(job.store), True, go)
    except typer.Exit as e:
        return e.exit_code
    return Exit.DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
