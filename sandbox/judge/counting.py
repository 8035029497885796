"""Has Nsight Compute count one launch for a judge that answers others: in a process beside the judge's, on its GPU.

Relies on `sandbox/profile/counters/answer.py`, which it starts by name. What is missing there is an answer of one line,
and no fault. A run on the machine of its GPU counts by itself (`counters/collect.py`): it lets go of the GPU sooner.
"""

import json
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.judge.worker_process import environment

ANSWERS = "pgo_agent.sandbox.profile.counters.answer"
SECONDS = 700.0  # torch, the target, and a launch that is replayed some 40 times


class Counting(Protocol):
    """What is needed of the judge whose GPU it is."""

    python: str
    gpu: str | None

    def turn(self) -> AbstractContextManager[object]: ...
    def occupied(self) -> AbstractContextManager[None]: ...


def counted(judge: Counting, contract: Path, fields: JsonObject) -> JsonObject:
    """Return the answer to `questions.Count`, of these fields."""
    with judge.turn(), judge.occupied():
        asked = {"contract": str(contract.resolve()), "python": judge.python, "gpu": judge.gpu, **fields}
        return _ran([judge.python, "-B", "-m", ANSWERS], json.dumps(asked))


def _ran(command: list[str], asked: str) -> JsonObject:
    try:
        done = subprocess.run(
            command, input=asked, capture_output=True, text=True, timeout=SECONDS, env=environment(None), check=False
        )
        answer = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return {"problem": f"nothing was counted in {SECONDS:.0f} s"}
    except ValueError:
        last = next(reversed(done.stderr.strip().splitlines()), f"exit status {done.returncode}")
        return {"problem": f"nothing was counted: {last}"[:300]}
    return answer if isinstance(answer, dict) else {"problem": "nothing was counted"}
