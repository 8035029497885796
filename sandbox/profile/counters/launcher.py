"""`python -m pgo_agent.sandbox.profile.counters.launcher REQUEST`: what ncu runs. Launches one kernel of a plan once.

Relies on the judge's half: torch, numpy, what the target imports, and the CUDA driver, which it leaves alone until it
gets its GPU (`gpu_handover.py`). The launch that is to be looked at stands alone between the start and the stop of
CUDA's profiler, so that no name is needed to find it. A problem is left in one line beside the request. It
measures nothing, and checks no result.
"""

import json
import os
import sys
import threading
from pathlib import Path

import torch
from pgo_agent.sandbox.bundle.schema import Launch, Plan
from pgo_agent.sandbox.errors import BadBundle
from pgo_agent.sandbox.guard_zones import NAN
from pgo_agent.sandbox.judge.launches.plan_executor import synchronize
from pgo_agent.sandbox.judge.results.commands import CheckCommands
from pgo_agent.sandbox.profile.counters.gpu_handover import awaited
from pgo_agent.sandbox.profile.counters.ncu import PROBLEM
from pgo_agent.sandbox.profile.counters.types import LaunchOnce

WARM = 2  # whole plans before the launch that counts
LATE = 72  # exit status: the asking process is gone


class Once(CheckCommands):
    """An open target, and one launch of one of its kernels."""

    def launch(self, asked: LaunchOnce) -> None:
        """The first launch of a plan's kernel. Raises BadBundle and what the driver raises."""
        bench, case = self._bench(), asked.case
        bench.new_seeds()
        replay = bench.replay(self._pick({case: asked.plain}), case, bench.seeds[case])
        chosen = first(replay.plan, asked.kernel)
        for _ in range(WARM):
            replay.poison(NAN)
            replay()
        replay.poison(NAN)
        replay.part(range(chosen))
        synchronize(bench.device)
        torch.cuda.profiler.start()
        replay.part(range(chosen, chosen + 1))
        synchronize(bench.device)
        torch.cuda.profiler.stop()
        replay.close()


def first(plan: Plan, kernel: str) -> int:
    """Return the first step that launches a kernel. Raises BadBundle where none does."""
    for i, step in enumerate(plan.steps):
        if isinstance(step, Launch) and step.kernel == kernel:
            return i
    raise BadBundle(f"the plan launches no kernel {kernel[:12]}")


def main(path: Path) -> int:
    gpu = awaited(path.parent, lambda: os._exit(LATE))
    if not gpu:
        return LATE
    os.environ["CUDA_VISIBLE_DEVICES"] = gpu  # which CUDA reads when it is first used
    asked = LaunchOnce.from_json(json.loads(path.read_text()))
    timer = threading.Timer(asked.seconds, os._exit, (LATE,))
    timer.daemon = True
    timer.start()
    try:
        once = Once(lambda stage, seconds: None)  # one deadline for all
        once.start(asked.contract)
        once.launch(asked)
    except Exception as e:
        (path.parent / PROBLEM).write_text(" ".join(f"{type(e).__name__}: {e}".split())[:300])
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
