"""Seconds of the GPU are a budget over all resumptions of a run: when they are spent, nothing more is judged."""

from pathlib import Path

import pytest
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.record.store import Store
from pgo_agent.sandbox.judge.gpu_judge import GpuJudge

from tests.agent.advised import NAME, advised
from tests.agent.loopback import completion


def context(workspace: Path, seconds: float | None, busy: float) -> Context:
    """Of a run with a GPU whose judge, not started yet, was busy for so long."""
    with advised(workspace, completion()) as of:
        ctx = of.ctx
    ctx.change({"gpu_seconds": seconds})
    ctx.gpu = GpuJudge(ctx.target, spares=0)
    ctx.gpu.busy = busy
    return ctx


def test_what_the_judge_was_busy_for_is_booked_once_over_all_resumptions(tmp_path: Path) -> None:
    first = context(tmp_path, 10.0, 4.0)
    assert first.gpu_seconds() == 4.0 and first.gpu_seconds() == 4.0 and not first.out_of_time()
    assert context(tmp_path, 10.0, 5.0).gpu_left() == pytest.approx(1.0)
    assert context(tmp_path, 10.0, 1.0).out_of_time()
    assert Store(tmp_path).run(NAME).gpu_seconds == pytest.approx(10.0)


def test_without_such_a_budget_or_without_a_gpu_they_do_not_end_a_run(tmp_path: Path) -> None:
    assert not context(tmp_path, None, 1e6).out_of_time()
    elsewhere = context(tmp_path, 0.0, 0.0)
    assert elsewhere.out_of_time()
    elsewhere.gpu = None
    assert not elsewhere.out_of_time()


def test_minutes_end_a_run_as_before(tmp_path: Path) -> None:
    ctx = context(tmp_path, None, 0.0)
    ctx.store.add_seconds(NAME, 60 * 20.0)
    assert ctx.out_of_time()
