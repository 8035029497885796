"""`python -m pgo_agent.sandbox.judge`: serves one GPU, or (`--cpu`) Triton's interpreter, on standard input and output.

With `--spool DIR --target FILE` it answers the requests in a folder (`spool/server.py`). Otherwise only `gpu_judge.py`
starts it.

Each line is one JSON object. "answer" holds the answer to a command, "fault" a fault of the machine or the target. A
line with "stage" announces the next step and its deadline in seconds.
"""

import json
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

from pgo_agent.sandbox.imports import heavy

ORPHANED, FAULTED = 71, 70  # exit statuses
ENDING = 5.0  # seconds from the end of its input


def end_with(parent: int) -> None:
    """End this process soon after its parent is gone or its input is closed, even while a kernel never ends.

    The input matters because the parent may be a tool that outlives the user's process.
    """

    def watch() -> None:
        poller = select.poll()
        poller.register(0, 0)  # a closed end is reported without a flag
        while os.getppid() == parent and not poller.poll(500):
            continue
        deadline = time.monotonic() + ENDING  # time to end by itself
        while os.getppid() == parent and time.monotonic() < deadline:
            time.sleep(0.1)  # a dying parent closes its pipes before its children get another parent
        os._exit(ORPHANED)

    threading.Thread(target=watch, daemon=True).start()


def _worker(cpu: bool, announce: Callable[[str, float], None]) -> Any:
    if cpu:
        from pgo_agent.sandbox.judge.interpreted.commands import CpuWorker

        return CpuWorker(announce)
    from pgo_agent.sandbox.judge.timing.commands import Worker

    return Worker(announce)


def serve(replies: TextIO, cpu: bool) -> None:
    from pgo_agent.sandbox.errors import Fault
    from pgo_agent.sandbox.judge import questions

    def say(message: Mapping[str, object]) -> None:
        print(json.dumps(message), file=replies, flush=True)

    def announce(stage: str, seconds: float) -> None:
        say({"stage": stage, "seconds": seconds})

    with heavy():
        worker = _worker(cpu, announce)
    for line in sys.stdin:
        try:
            question = questions.read(json.loads(line))
            answer = getattr(worker, question.do)(question)
            worker.rest()
            say({"answer": answer.as_json()})
        except Fault as e:
            say({"fault": {"type": type(e).__name__, "message": e.message, "hint": e.hint}})
        except Exception as e:
            say({"crash": f"{type(e).__name__}: {e}"})
            os._exit(FAULTED)  # after a CUDA error nothing in this process can be trusted


def spooling(arguments: Sequence[str]) -> int:
    from pgo_agent.sandbox.judge.spool import server

    return server.main(arguments)


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1:] != ["--cpu"]:
        sys.exit(spooling(sys.argv[1:]))
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the target prints must not look like a reply
    end_with(os.getppid())
    serve(replies, "--cpu" in sys.argv)
