"""`--slurm`: the runs of a plan by jobs of submitit, here by its executor of this machine, as real processes."""

from pathlib import Path

import pytest
from pgo_agent.evals.runner import slurm
from pgo_agent.sandbox.errors import UsageFault

from tests.agent.command_line import pgo
from tests.evals.test_ablation import lines, planned
from tests.evals.test_side_by_side import TWO


@pytest.mark.slow
def test_two_jobs_make_two_runs_and_the_results_are_shown_by_the_command_that_sent_them(tmp_path: Path) -> None:
    words = ("--judge", "cpu", "--at-once", "2", "--slurm", "cluster=local,timeout_min=5", "--json")
    done = pgo(*planned(tmp_path, *TWO), *words, cwd=tmp_path)
    assert done.code == 0, done.err
    assert len(lines(tmp_path, "run")) == 2 and done.events[-1]["missing"] == 0
    said = [str(e.get("doing", "")) for e in done.events]
    assert any(s.startswith("2 jobs make the runs of out.jsonl: ") for s in said), said
    assert list((tmp_path / ".pgo-agent" / "slurm").glob("*_log.out"))


def test_options_are_those_of_sbatch_or_of_submitit() -> None:
    assert slurm.parameters("partition=gpu, gpus-per-node=1,timeout_min=240,cluster=local") == {
        "slurm_partition": "gpu", "gpus_per_node": 1, "timeout_min": 240, "cluster": "local",
    }  # fmt: skip
    with pytest.raises(UsageFault, match="'gpu' is no NAME=VALUE"):
        slurm.parameters("gpu")


def test_without_slurm_it_is_said(tmp_path: Path) -> None:
    done = pgo(*planned(tmp_path, *TWO), "--judge", "cpu", "--slurm", "partition=gpu", cwd=tmp_path)
    assert done.code == 3 and "no Slurm here" in done.err, done.err
