"""The process in which the loop of a session runs: `python -m pgo_agent.agent.live.worker JOB`, events on stdout.

Its stdin is a lifeline: when the session is gone, however it died, the run is interrupted as by Ctrl-C, and can be
resumed. It takes no commands there: what a person wants goes through the record.
"""

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import typer
from pgo_agent.agent import session, shell
from pgo_agent.agent.errors import Exit

GRACE = 10.0  # seconds in which an interrupted run ends by itself


def job(store: Path, file: Path | None, wishes: dict[str, Any], run: str) -> str:
    """What a worker is told to do: to go on with `run`, or, without one, to start a run of `file`."""
    return json.dumps({"store": str(store), "file": str(file or ""), "wishes": wishes, "run": run})


def main(text: str) -> int:
    told = json.loads(text)
    threading.Thread(target=_lifeline, daemon=True).start()

    def go(store: Any, emit: Any) -> int:
        if told["run"]:
            return session.resume(told["run"], store, emit)
        return session.start(Path(told["file"]), session.Wishes(**told["wishes"]), store, emit)

    try:
        shell.run(True, Path(told["store"]), True, go)
    except typer.Exit as e:
        return e.exit_code
    return Exit.DONE


def _lifeline() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGINT)
    threading.Event().wait(GRACE)
    os._exit(Exit.INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
