"""The process in which the loop of a session runs: `python -m pgo_agent.agent.live.worker JOB`, events on stdout.

It ends with the session (`lifeline.py`): its run can be resumed. What a person wants comes to it through the record.
"""

import json
import sys
from pathlib import Path
from typing import Any

import typer
from pgo_agent.agent import lifeline, session, shell
from pgo_agent.agent.errors import Exit


def job(store: Path, file: Path | None, wishes: dict[str, Any], run: str) -> str:
    """What a worker is told to do: to go on with `run`, or, without one, to start a run of `file`."""
    return json.dumps({"store": str(store), "file": str(file or ""), "wishes": wishes, "run": run})


def main(text: str) -> int:
    told = json.loads(text)
    lifeline.hold()

    def go(store: Any, emit: Any) -> int:
        if told["run"]:
            return session.resume(told["run"], store, emit)
        return session.start(Path(told["file"]), session.Wishes(**told["wishes"]), store, emit)

    try:
        shell.run(True, Path(told["store"]), True, go)
    except typer.Exit as e:
        return e.exit_code
    return Exit.DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
