"""Runs on several GPUs that are made up: `python many.py FOLDER N ARGS` is `pgo-agent ARGS` on a machine of N of them.

All is real but the judge processes (`made_up_process.py`): the pool, its locks, the run and its record. FOLDER is
theirs; `Machine` writes it, and reads what was asked there.
"""

import itertools
import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pgo_agent.sandbox.judge.gpu_judge import GpuJudge
from pgo_agent.sandbox.judge.gpu_lock import GpuLock
from pgo_agent.sandbox.judge.gpus import Gpu
from pgo_agent.sandbox.judge.pool import GpuPool
from pgo_agent.sandbox.target import Target

from tests.agent import made_up_process
from tests.conftest import ROOT

NOBODY = Target(Path(), "", Path(), "")


@dataclass(frozen=True)
class Machine:
    folder: Path
    gpus: int

    def control(self, **how: Any) -> None:
        """What the processes do from their next command on: see made_up_process.py."""
        self.folder.mkdir(exist_ok=True)
        part = self.folder / "control.part"
        part.write_text(json.dumps(how))
        part.replace(self.folder / "control.json")

    def asked(self) -> list[dict[str, Any]]:
        path = self.folder / "asked"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def judges(self, target: Target = NOBODY) -> GpuPool:
        python = self.folder / "python"
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        python.write_text(
            f'#!/bin/sh\nPYTHONPATH="{path}" exec {sys.executable} {made_up_process.__file__} {self.folder} "$@"\n'
        )
        python.chmod(0o700)
        found = [Gpu(f"GPU-{i}", str(i), "made up") for i in range(self.gpus)]
        return GpuPool([GpuJudge(target, str(python), g.uuid, lock=GpuLock(g), spares=0) for g in found])

    def command(self, *args: str) -> list[str]:
        return [sys.executable, __file__, str(self.folder), str(self.gpus), *args]


def overlapping(asked: Iterable[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Commands that were on the same GPU at the same time."""
    listed = sorted(asked, key=lambda a: (a["gpu"], a["began"]))
    return [(a, b) for a, b in itertools.pairwise(listed) if a["gpu"] == b["gpu"] and b["began"] < a["ended"]]


def main() -> None:
    from pgo_agent.agent.cli import main
    from pgo_agent.agent.run import judge_choice
    from pgo_agent.sandbox import devices

    machine = Machine(Path(sys.argv[1]), int(sys.argv[2]))
    judge_choice.choose = lambda _asked: (machine.judges(), devices.find("h200"))
    sys.argv[1:] = sys.argv[3:]
    main.main()


if __name__ == "__main__":
    main()
