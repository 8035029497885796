"""Judges without a GPU, one for each target in a process of pytest, however many tests ask it.

Each first finds out, with the target's own kernel, which stress inputs count: that takes longer than judging a
candidate. Tests that break a judge make one of their own.
"""

import atexit
from pathlib import Path

from pgo_agent.sandbox import target
from pgo_agent.sandbox.judge.gpu_judge import GpuJudge

_JUDGES: dict[tuple[str, str], GpuJudge] = {}


def judge_of(path: Path) -> GpuJudge:
    """The judge of a target with this text."""
    found = target.read(path)
    key = found.source, found.contract
    if key not in _JUDGES:
        _JUDGES[key] = GpuJudge(found, gpu=None)
        atexit.register(_JUDGES[key].close)
    return _JUDGES[key]
