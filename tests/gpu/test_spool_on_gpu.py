"""A judge on the other side of a folder, on a real GPU: the verdicts are those of a judge that is asked directly.

The worker is the command that answers on the machine of the GPU; the run sees no GPU of its own.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pgo_agent.agent.exit_codes import FAULTY
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.judge.gpu_judge import GpuJudge, visible_gpu

from tests.agent.breaking import database
from tests.agent.command_line import pgo, write
from tests.sandbox.judge.test_gpu_judge import end, wait_for
from tests.sandbox.processes import alive, below

SMALL = ("optimize", "add.py", "--case", "1m", "--candidates", "2", "--width", "2", "--json")
WRONG = ("tl.load(x_ptr + at, mask=inside) + tl", "tl.load(x_ptr + at, mask=inside) - tl")


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The key of this machine's GPU."""
    judge = GpuJudge(target.read(write(tmp_path_factory.mktemp("device"))), gpu=visible_gpu() or "0")
    try:
        found = devices.named(judge.open().gpu or "")
    finally:
        judge.close()
    if found is None:
        pytest.skip("sandbox/devices.py does not know this GPU")
    return found.key


@contextmanager
def answering(folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-m", "pgo_agent.sandbox.judge", "--spool", "box", "--target", "add.py"]
    worker = subprocess.Popen(command, cwd=folder)
    try:
        yield worker
    finally:
        started = below(worker.pid)
        worker.terminate()
        worker.wait(60)
        end(started & alive().keys())


def elsewhere(folder: Path, *args: str, device: str) -> Any:
    """The command line where no GPU is, which asks in `folder`/box."""
    asking = (*args, "--judge", "spool:box", "--device", device)
    return pgo(*asking, cwd=folder, CUDA_VISIBLE_DEVICES="")


def verdicts(folder: Path) -> dict[str, str]:
    db = database(folder)
    try:
        return {r["id"]: r["verdict"] for r in db.execute("SELECT id, verdict FROM candidates")}
    finally:
        db.close()


@pytest.mark.gpu
@pytest.mark.slow
def test_a_whole_run_through_a_folder_finds_what_a_direct_one_finds(tmp_path: Path, device: str) -> None:
    """What is proposed next follows from times, which differ by noise; what is right and wrong does not."""
    near, far = tmp_path / "near", tmp_path / "far"
    for folder in (near, far):
        folder.mkdir()
        write(folder)
    direct = pgo(*SMALL, cwd=near)
    with answering(far):
        done = elsewhere(far, *SMALL, device=device)
    assert direct.code in (0, 1) and done.code in (0, 1), (direct.err, done.err)
    ours, theirs = verdicts(far), verdicts(near)
    assert len(ours) == len(theirs) == 2
    assert all(v is not None and v not in FAULTY for v in (*ours.values(), *theirs.values()))
    summaries = [d.events[-1]["summary"] for d in (direct, done)]
    assert summaries[0]["environment"]["gpu"] == summaries[1]["environment"]["gpu"]
    medians = [s["cases"]["CASES/1m"]["sides"]["tuned"]["ms"] for s in summaries]
    assert max(medians) < 1.2 * min(medians)


@pytest.mark.gpu
@pytest.mark.slow
def test_a_wrong_candidate_is_wrong_on_the_other_side_too(tmp_path: Path, device: str) -> None:
    write(tmp_path)
    write(tmp_path, WRONG, name="wrong.py")
    with answering(tmp_path):
        done = elsewhere(tmp_path, "check", "wrong.py", "--target", "add.py", "--json", device=device)
    assert done.code == 1, done.err
    assert list(verdicts(tmp_path).values()) == ["wrong"]


@pytest.mark.gpu
@pytest.mark.slow
def test_a_worker_that_is_killed_in_the_middle_changes_no_verdict(tmp_path: Path, device: str) -> None:
    write(tmp_path)
    asking = subprocess.Popen(
        [sys.executable, "-m", "pgo_agent.agent.cli.main", *SMALL, "--judge", "spool:box", "--device", device],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
    )
    claims = tmp_path / "box" / "claims"
    with answering(tmp_path) as first:
        assert wait_for(lambda: any(p.suffix == ".json" for p in claims.glob("*")), 300)
        first.kill()
        first.wait()
    with answering(tmp_path):
        assert asking.wait(900) in (0, 1)
    assert None not in verdicts(tmp_path).values()
