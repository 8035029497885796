"""`python -m pgo_agent.sandbox.judge`: serves one GPU, or (`--cpu`) Triton's interpreter, on standard input and output.

With `--spool DIR --target FILE` it is the side of a folder that answers (`sandbox/judge/spool/server.py`); else nobody
calls it but `gpu_judge.py`.

One JSON object a line. A reply has the fields of its command's answer under "answer", a fault of the machine or the
target under "fault"; lines with "stage" announce what is about to run and for how many seconds at most.
"""

import json
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from pgo_agent.sandbox.imports import heavy

ORPHANED, FAULTED = 71, 70  # exit statuses
ENDING = 5.0  # seconds from the end of its input


def end_with(parent: int) -> None:
    """Ends this process soon after its parent is gone, even while a kernel that never ends keeps it waiting.

    So does the end of its input, for the parent may be a tool that outlives whoever asked.
    """

    def watch() -> None:
        told = select.poll()
        told.register(0, 0)  # the other end closed is told unasked
        while os.getppid() == parent and not told.poll(500):
            continue
        late = time.monotonic() + ENDING  # until then it ends by itself, or its parent is seen to be gone
        while os.getppid() == parent and time.monotonic() < late:
            time.sleep(0.1)  # a parent that dies closes its pipes before its children are another's
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

    def say(message: dict[str, Any]) -> None:
        print(json.dumps(message), file=replies, flush=True)

    def announce(stage: str, seconds: float) -> None:
        say({"stage": stage, "seconds": seconds})

    with heavy():
        worker = _worker(cpu, announce)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(worker, request["do"])(request)
            worker.rest()
            say({"answer": answer})
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
