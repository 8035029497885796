"""`optimize --from-trace` and `trace`: several kernels under one budget, and what a machine without a GPU says."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from pgo_agent.agent.commands.traces import events
from pgo_agent.agent.commands.traces.optimize_traced import Left
from pgo_agent.agent.run.settings import RunSettings

from tests.agent.command_line import pgo
from tests.agent.commands.traces.edited import edited, of


def test_a_run_gets_its_part_of_what_is_left_and_nothing_where_the_time_is_over() -> None:
    asked = RunSettings(minutes=10.0, gpu_seconds=100.0, tokens=1001)
    left = Left.of(asked)
    half = left.part(asked, 0.5)
    assert half.minutes == pytest.approx(5.0, abs=0.1)
    assert (half.gpu_seconds, half.tokens, half.money) == (50.0, 500, None)
    left.until = time.monotonic() - 1
    assert left.part(asked, 0.5).minutes == 0.0


@pytest.mark.slow
def test_kernels_are_run_one_after_another_and_one_without_a_target_is_said_and_skipped(tmp_path: Path) -> None:
    def cut(event: dict[str, Any]) -> bool:
        if of(event, "_count") and (source := event.get("payload", {}).get("python_source")):
            source["code"] = "@triton.jit\ndef _count(I, OUT, n, BLOCK: tl.constexpr):\n    helper(I)\n"
            source.pop("function_start_line")
        return of(event, "_count", "_decay")

    path = edited(tmp_path, cut)
    with path.open("a") as file:
        file.write(json.dumps({"event_type": events.TIMES, "ms": {"_count": 0.02, "_decay": 0.1}}) + "\n")
    done = pgo("optimize", "--from-trace", path, "--minutes", "3", "--candidates", "1", "--judge", "cpu", cwd=tmp_path)
    assert done.code == 0, done.err
    rows = {line.split()[0]: line for line in done.out.splitlines() if line.startswith("_")}
    assert "ranked, not measured" in rows["_decay"] and "decay_target-" in rows["_decay"]
    assert "skipped: the source of _count is not whole" in rows["_count"]
    assert (tmp_path / "decay_target.py").exists() and not (tmp_path / "count_target.py").exists()


@pytest.mark.long
@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_trace_is_not_recorded_without_a_gpu_and_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('ran')\n")
    done = pgo("trace", "--", "python", "train.py", cwd=tmp_path)
    assert done.code == 3 and "there is no GPU here" in done.err
    assert "ran" not in done.out and not (tmp_path / "trace").exists()
    assert pgo("trace", cwd=tmp_path).code == 2
