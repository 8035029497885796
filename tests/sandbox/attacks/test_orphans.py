"""What a candidate starts must end with it: children, and orphans that left its process group and its session.

A process that lives writes a heartbeat where the box lets it, into out/; a dead one does not.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pgo_agent.sandbox.isolation import landlock

from tests.sandbox.attacks import inside
from tests.sandbox.attacks.conftest import Attack
from tests.sandbox.attacks.inside import Seat

HEART = """
import os, time
def beat():
    at = os.open(OUT / "part", os.O_WRONLY | os.O_CREAT, 0o644)
    while True:
        os.pwrite(at, b"%9d %20d" % (os.getpid(), time.monotonic_ns()), 0)
        if not (OUT / "beat").exists():
            os.rename(OUT / "part", OUT / "beat")
        time.sleep(0.01)
def begin(*escape):
    if os.fork() == 0:
        for step in escape:
            step()
        beat()
    while not (OUT / "beat").exists():
        time.sleep(0.01)
def again():  # forks, and lets the parent die
    if os.fork():
        os._exit(0)
"""
ESCAPES = {
    "a child": "",
    "an orphan in a session of its own": "os.setsid, again",
    "an orphan of an orphan in another group": "os.setsid, again, lambda: os.setpgid(0, 0), again",
}
ENDS = {
    "by itself": "os._exit(0)",
    "at its deadline": "time.sleep(600)",
    "by a signal": "os.kill(os.getpid(), 9)",
    "by a signal to its group": "os.killpg(0, 9)",
}


def beats(folder: Path, times: int = 20) -> bool:
    """Whether the heart goes on. (bubblewrap may return a moment before the last process of its namespace is dead.)"""
    for _ in range(times):
        before = (folder / "out" / "beat").read_text()
        time.sleep(0.1)
        if (folder / "out" / "beat").read_text() == before:
            return False
    return True


@pytest.mark.parametrize(
    ("escape", "end"),
    [*((escape, "by itself") for escape in ESCAPES), *((list(ESCAPES)[1], end) for end in list(ENDS)[1:])],
)
def test_nothing_survives_a_process_that_ends(attack: Attack, seat: Seat, escape: str, end: str) -> None:
    if seat.kind == "landlock" and landlock.abi() < 6:
        pytest.skip("an attacker can kill the process that cleans up, before Linux 6.12")
    seconds = 60.0 if end != "at its deadline" else 2.0 if seat.role == "compiler" else 12.0
    _, folder = attack(f"{HEART}\nbegin({ESCAPES[escape]})\n{ENDS[end]}", seconds)
    assert not beats(folder)


def test_without_a_box_an_orphan_in_a_session_of_its_own_survives(unboxed: Attack) -> None:
    _, folder = unboxed(f"{HEART}\nbegin({ESCAPES['an orphan in a session of its own']})\nos._exit(0)")
    try:
        assert beats(folder, 3)
    finally:
        os.kill(int((folder / "out" / "beat").read_text().split()[0]), signal.SIGKILL)


def test_nothing_survives_the_agent_that_is_killed(seat: Seat, place: Path) -> None:
    """The agent gets no chance to clean up."""
    folder = place / "box"
    code = f"{HEART}\nbegin(os.setsid, again)\ntime.sleep(600)"
    starter = "import sys; from attacks.inside import Seat; from pathlib import Path; "
    starter += f"Seat({seat.kind!r}, {seat.role!r}, {seat.user!r}).run({code!r}, Path({str(folder)!r}))"
    path = os.pathsep.join(str(p) for p in (Path(inside.__file__).parents[1], *sys.path) if p)
    with subprocess.Popen([sys.executable, "-c", starter], env=os.environ | {"PYTHONPATH": path}) as agents_parent:
        try:
            assert wait_for(folder / "out" / "beat")
            (agent,) = children(agents_parent.pid)
            os.kill(agent, signal.SIGKILL)
        finally:
            agents_parent.kill()
    assert not beats(folder)


def wait_for(path: Path) -> bool:
    end = time.monotonic() + 60
    while time.monotonic() < end and not path.exists():
        time.sleep(0.05)
    return path.exists()


def children(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=True)
    return [int(p) for p in listed.stdout.split()]
