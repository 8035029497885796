"""Judges without a GPU, one for each target in a process of pytest, however many tests ask it.

Each first finds out, with the target's own kernel, which stress inputs count: that takes longer than judging a
candidate. Tests that break a judge make one of their own.
"""

import atexit
from pathlib import Path

from pgo_agent.sandbox import target
from pgo_agent.sandbox.gate.verdict import Judgement
from pgo_agent.sandbox.judge.gpu_judge import GpuJudge
from pgo_agent.sandbox.judge.questions import Check

_JUDGES: dict[tuple[str, str], GpuJudge] = {}


def judge_of(path: Path) -> GpuJudge:
    """The judge of a target with this text."""
    found = target.read(path)
    key = found.source, found.contract
    if key not in _JUDGES:
        _JUDGES[key] = GpuJudge(found, gpu=None)
        atexit.register(_JUDGES[key].close)
    return _JUDGES[key]


def judged(judge: GpuJudge, old: str = "", new: str = "") -> Judgement:
    """The verdict on the target's own source, in which `old` was replaced."""
    source = judge.target.source
    assert old in source
    return judge.verdict(Check(source=source.replace(old, new) if old else source))
