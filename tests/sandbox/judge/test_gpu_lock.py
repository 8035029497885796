"""The lock of a GPU between real processes: one holds it, the others wait in turn, and its death frees it."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pgo_agent.sandbox.errors import EnvironmentFault
from pgo_agent.sandbox.judge import gpu_lock as locks
from pgo_agent.sandbox.judge.gpu_lock import GpuLock
from pgo_agent.sandbox.judge.gpus import Gpu
from pgo_agent.sandbox.judge.spool import protocol, server
from pgo_agent.sandbox.judge.spool.folder import Folder
from pgo_agent.sandbox.judge.spool.protocol import Request
from pgo_agent.sandbox.judge.spool.server import Worker

from tests.sandbox.judge.test_gpu_judge import wait_for

GPU, OTHER = Gpu("GPU-0", "0", "none"), Gpu("GPU-1", "1", "none")
HOLDER = """
import subprocess, sys, time
from pgo_agent.sandbox.judge.gpus import Gpu
from pgo_agent.sandbox.judge.gpu_lock import GpuLock
lock = GpuLock(Gpu("GPU-0", "0", "none"))
with lock.turn(lambda gpu, holder: print("waits for", holder, flush=True)):
    child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], pass_fds=[lock.fd]) if len(sys.argv) > 1 else None
    print("holds", child.pid if child else "", flush=True)
    sys.stdin.read()
"""
SLEEPS = "import time; time.sleep(600)"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the processes of a test meet."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def holder() -> "Iterator[subprocess.Popen[str]]":
    """Another process, which holds the GPU until its input ends."""
    with subprocess.Popen([sys.executable, "-c", HOLDER], stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "holds \n"
        yield process
        process.kill()


def test_a_gpu_that_another_process_holds_cannot_be_taken_and_others_can(holder: "subprocess.Popen[str]") -> None:
    lock, other = GpuLock(GPU), GpuLock(OTHER)
    assert (lock.taken(), other.taken()) == (False, True)
    assert lock.holder == f"process {holder.pid}"


def test_who_waits_is_told_for_whom_and_for_how_long_it_was(holder: "subprocess.Popen[str]") -> None:
    told: list[tuple[Gpu, str]] = []

    def tell(gpu: Gpu, whose: str) -> None:
        told.append((gpu, whose))
        time.sleep(0.3)
        holder.kill()

    with GpuLock(GPU).turn(tell) as waited:
        assert waited >= 0.3
    assert told == [(GPU, f"process {holder.pid}")]


@pytest.mark.long
def test_who_was_stopped_while_he_stood_in_line_is_passed_by() -> None:
    """Ctrl-Z on a run that waits would keep everybody off a GPU that nobody uses."""
    first, third = GpuLock(GPU), GpuLock(GPU)
    assert first.taken()
    second = subprocess.Popen([sys.executable, "-c", HOLDER], stdin=-1, stdout=-1, text=True)
    try:
        assert second.stdout is not None and second.stdout.readline().startswith("waits for")
        time.sleep(1)  # in which it stands in line again
        second.send_signal(signal.SIGSTOP)
        first.free()
        assert not third.taken()
        began = time.monotonic()
        assert wait_for(third.taken, 10) and time.monotonic() - began > 1
    finally:
        second.kill()
        second.communicate()


def test_who_is_slow_to_hear_that_there_is_a_wait_keeps_nobody_off(holder: "subprocess.Popen[str]") -> None:
    another, passed = GpuLock(GPU), []

    def tell(*_: object) -> None:
        holder.kill()
        passed.append(wait_for(another.taken, 10))
        another.free()

    with GpuLock(GPU).turn(tell):
        assert passed == [True]


def test_nobody_is_told_to_wait_for_himself() -> None:
    """Who had it last is written down; it may be one who waits, while another one stands in the line before him."""
    first, second = GpuLock(GPU), GpuLock(GPU)
    assert first.holder == "another process"
    assert first.taken() and second.holder == "another process"


def test_nobody_waits_for_a_gpu_that_is_free() -> None:
    with GpuLock(GPU).turn(lambda *_: pytest.fail("it is free")):
        assert not GpuLock(GPU).taken()


def test_a_holder_takes_it_again_within_and_frees_it_at_the_end() -> None:
    lock, another = GpuLock(GPU), GpuLock(GPU)  # in one process, too, they exclude each other
    with lock.turn(lambda *_: None):
        with lock.turn(lambda *_: pytest.fail("it has it")):
            assert not another.taken()
        assert not another.taken()
    assert another.taken()


def test_a_killed_holder_frees_it(holder: "subprocess.Popen[str]") -> None:
    lock = GpuLock(GPU)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert lock.taken()


def test_a_killed_holders_judge_process_holds_it_until_it_is_gone_too() -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER, SLEEPS], stdin=-1, stdout=-1, text=True) as holder:
        assert holder.stdout is not None
        child = int(holder.stdout.readline().split()[1])
        holder.kill()
        holder.wait()
        lock = GpuLock(GPU)
        assert not lock.taken()
        os.kill(child, signal.SIGKILL)
        assert wait_for(lock.taken, 10)


def test_who_had_it_does_not_get_it_again_before_one_that_waits() -> None:
    first, second = GpuLock(GPU), GpuLock(GPU)
    for _ in range(3):
        assert first.taken() and not second.taken()  # stands in line from now on
        first.free()
        assert not first.taken()
        assert second.taken()
        second.free()
        first.left()


def test_who_leaves_the_line_is_not_waited_for() -> None:
    first, second = GpuLock(GPU), GpuLock(GPU)
    assert first.taken() and not second.taken()
    second.left()
    first.free()
    assert first.taken()


def test_the_folder_is_the_users_alone(place: Path) -> None:
    assert locks.folder() == place / "pgo-agent"
    assert (place / "pgo-agent").stat().st_mode & 0o777 == 0o700


def test_a_folder_that_is_a_link_is_refused(place: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    (place / "pgo-agent").symlink_to(tmp_path_factory.mktemp("elsewhere"))
    with pytest.raises(EnvironmentFault, match="is somebody else's"):
        GpuLock(GPU).taken()


def test_a_lock_that_is_a_link_is_refused(place: Path) -> None:
    (locks.folder() / "gpu-GPU-0.lock").symlink_to(place / "x")
    with pytest.raises(EnvironmentFault, match="cannot lock a GPU"):
        GpuLock(GPU).taken()
    assert not (place / "x").exists()


def test_a_runtime_folder_that_is_not_there_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/nonexistent")
    assert locks.folder() == Path(f"/tmp/pgo-agent-{os.getuid()}")


def test_a_worker_of_a_spool_claims_nothing_while_another_process_has_its_gpu(
    holder: "subprocess.Popen[str]", place: Path
) -> None:
    folder, said = Folder(place / "spool"), list[str]()
    folder.make()
    folder.ask(Request("run-1", "0" * 64, "NVIDIA H200", protocol.HELLO, {}, ()).as_bytes())
    turns = server.turns(GpuLock(GPU), said.append)
    answering = Worker(folder, {}, lambda _: pytest.fail("the target is not allowed"), turns)
    thread = threading.Thread(target=answering.serve, args=(True, said.append))
    thread.start()
    assert wait_for(lambda: bool(said), 10)
    assert said == [f"waits: process {holder.pid} uses it"]
    assert list((place / "spool" / "claims").iterdir()) == [] == list((place / "spool" / "answers").iterdir())
    holder.kill()
    thread.join(10)
    assert len(list((place / "spool" / "answers").iterdir())) == 1
