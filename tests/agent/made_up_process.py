"""A judge process of made-up times: what `gpu_judge.py` talks to where a GPU would be, as a real process with real
pipes.

`python made_up_process.py FOLDER ...` reads FOLDER/control.json before each command: `hangs` (GPU -> commands that
never end there; `open` is the known computation, too), `seconds` (that a command takes), `deadline` (it announces),
`doubts` (from how many times faster on a candidate is not confirmed) and `flatters` (by how much more a first look says
of what is faster). A candidate's speedup follows from the hash of its first case's plans, whatever GPU it is asked of.
Each command becomes a line of FOLDER/asked with its GPU, its process, and when it began and ended.
"""

import hashlib
import json
import math
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.agent.made_up import COVERED, MadeUp

ENTERING = "start CUDA"


@dataclass
class OnGpu(MadeUp):
    """What one process does."""

    gpu: str = ""
    flatters: float = 0.0

    def answer(self, command: str, fields: dict[str, Any]) -> dict[str, Any]:
        if command in ("judge", "look", "confirm"):
            self.faster = _faster(_of(fields["candidate"]))
        return super().answer(command, fields)

    def _look(self, given: dict[str, Any]) -> dict[str, Any]:
        said = self.faster + (self.flatters if self.faster > 1 else 0.0)
        verdict = "checked" if said > 1 else "slower"
        evidence = {"speedup": [said] * 3}
        return {"verdict": verdict, "stage": "quick", "reason": f"{said:.3f}x", "evidence": evidence, **COVERED}


def _faster(bundle: dict[str, str]) -> float:
    """How many times faster the candidate of a bundle is said to be, at a first look as later."""
    manifest = json.loads(Path(bundle["manifest"]).read_bytes())
    plans = list(manifest["plans"][min(manifest["plans"])].values())  # of several candidates one may be the same
    kernels = [manifest["kernels"][s["kernel"]] for plan in plans for s in plan["steps"] if "kernel" in s]
    told = hashlib.sha256(json.dumps([plans, kernels], sort_keys=True).encode()).hexdigest()
    return 1.001 + int(told[4:8], 16) % 4000 / 10000


def _of(candidate: dict[str, Any]) -> dict[str, str]:
    where = candidate if "bundle" in candidate else next(iter(candidate.values()))
    return dict(where["bundle"])


def say(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


def serve(folder: Path, gpu: str) -> None:
    judge = OnGpu(1.0, folder / "made_up.asked", gpu=gpu)
    for line in sys.stdin:
        request = json.loads(line)
        control = json.loads((folder / "control.json").read_text())
        command, began = request.pop("do"), time.time()
        say({"stage": ENTERING if command == "open" else command, "seconds": control.get("deadline", 60.0)})
        if command in control.get("hangs", {}).get(gpu, ()):
            time.sleep(600)
        time.sleep(control.get("seconds", 0.0))
        judge.flatters = control.get("flatters", 0.0)
        answer = judge.open().as_json() if command == "open" else judge.answer(command, request)
        if command == "confirm" and judge.faster >= control.get("doubts", math.inf):
            answer |= {"verdict": "undecided", "reason": "the samples do not tell"}
        told = {"do": command, "gpu": gpu, "process": os.getpid(), "began": began, "ended": time.time()}
        told["candidate"] = _of(request["candidate"])["id"] if "candidate" in request else ""
        with (folder / "asked").open("a") as file:
            file.write(json.dumps(told) + "\n")
        say({"answer": answer})


if __name__ == "__main__":
    serve(Path(sys.argv[1]), os.environ["CUDA_VISIBLE_DEVICES"])
