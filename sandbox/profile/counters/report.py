"""Has Nsight Compute profile one launch of a plan, and returns what stands in its report.

The launcher imports torch before it gets its GPU (`gpu_handover.py`), so that a GPU is held for the launch alone. It
knows nothing of builds and lines: `collect.py` does, or who asked from elsewhere.
"""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from pgo_agent.sandbox.judge.references import PlanRef
from pgo_agent.sandbox.judge.worker_process import environment
from pgo_agent.sandbox.profile.counters import ncu, ncu_report
from pgo_agent.sandbox.profile.counters.gpu_handover import Handover
from pgo_agent.sandbox.profile.counters.ncu import PROBLEM, Absent, Program, Tool
from pgo_agent.sandbox.profile.counters.ncu_report import Facts
from pgo_agent.sandbox.profile.counters.types import LaunchOnce
from pgo_agent.sandbox.temporary_folders import temporary_folder

LAUNCHER = "pgo_agent.sandbox.profile.counters.launcher"
SECONDS = 300.0  # for torch, and again for the target and a launch that is replayed some 40 times
GRACE_SECONDS = 5.0  # behind the deadline, before the launcher ends itself


@dataclass(frozen=True)
class Launched:
    """What is to be launched: the first launch of a kernel in one call of the launcher."""

    contract: Path  # of the target
    case: str
    kernel: str  # key
    plain: PlanRef
    python: str
    seconds: float = SECONDS  # until the launcher waits for a GPU, and again for what it does there


@dataclass(frozen=True)
class Found:
    facts: Facts
    tool: str  # "ncu 2025.3.1"


def facts(
    what: Launched, turn: Callable[[], AbstractContextManager[str]], meanwhile: Callable[[], None] = lambda: None
) -> Found:
    """Return what was counted. `turn` holds a GPU and gives its UUID; `meanwhile` is done while the launcher starts.

    Raises Absent where there is nothing, and what `meanwhile` raises.
    """
    tool = ncu.find()
    reader = ncu.own_reader(tool)
    ncu_report.readable(reader)
    with temporary_folder("counters") as folder:
        asked = LaunchOnce(str(what.contract), what.case, what.kernel, what.plain, what.seconds + GRACE_SECONDS)
        (folder / "request.json").write_text(json.dumps(asked.as_json()))
        with Handover(folder) as handover, _started(tool, what.python, folder) as launcher:
            meanwhile()
            report = _launched(launcher, handover, turn, folder, what.seconds)
        return Found(ncu_report.facts(report, reader), tool.name)


def _started(tool: Tool, python: str, folder: Path) -> Program:
    """ncu, with a launcher that imports torch, and then waits for its GPU: until then it sees none."""
    launcher = [python, "-B", "-m", LAUNCHER, str(folder / "request.json")]
    return Program(tool.command(_report(folder), launcher), environment(None), folder / "log")


def _launched(
    launcher: Program, handover: Handover, turn: Callable[[], AbstractContextManager[str]], folder: Path, seconds: float
) -> Path:
    """Return the report of one launch. Raises Absent where there is none."""
    if not launcher.within(seconds, handover.ready):
        raise Absent(f"the launcher was not ready in {seconds:.0f} s")
    if not launcher.ended():
        with turn() as gpu:
            handover.give(gpu)
            if not launcher.within(seconds, lambda: False):
                raise Absent(f"the launch was not profiled in {seconds:.0f} s")
    if not _report(folder).is_file():
        raise Absent(why_none(launcher.output, folder / PROBLEM))
    return _report(folder)


def _report(folder: Path) -> Path:
    return folder / "report.ncu-rep"


def why_none(output: str, problem: Path) -> str:
    """Return why a run left no report: what ncu says, what the launcher left, or else the last line that was
    printed."""
    reason = problem.read_text() if problem.is_file() else ""
    message = ncu.refusal(output) or (f"nothing was launched: {reason}" if reason else "")
    return message or f"ncu profiled no kernel: {ncu.last_line(output) or 'it does not say why'}"
