"""The process in which the loop of a session runs: `python -m pgo_agent.agent.cli.session.worker JOB`, events on
stdout.

It ends with the session (`parent_watch.py`): its run can be resumed. What a person wants comes to it through the
record.
"""

import json
import sys
from pathlib import Path
from typing import Any

import typer
from pgo_agent.agent.cli import parent_watch, runner
from pgo_agent.agent.commands import optimize
from pgo_agent.agent.exit_codes import Exit
from pgo_agent.agent.run import settings


def job(store: Path, file: Path | None, wishes: dict[str, Any], run: str) -> str:
    """What a worker is told to do: to go on with `run`, or, without one, to start a run of `file`."""
    return json.dumps({"store": str(store), "file": str(file or ""), "wishes": wishes, "run": run})


def main(text: str) -> int:
    told = json.loads(text)
    parent_watch.hold()

    def go(store: Any, emit: Any) -> int:
        if told["run"]:
            return optimize.resume(told["run"], store, emit)
        return optimize.start(Path(told["file"]), settings.RunSettings(**told["wishes"]), store, emit)

    try:
        runner.run(True, Path(told["store"]), True, go)
    except typer.Exit as e:
        return e.exit_code
    return Exit.DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
