"""Candidates that take all there is: processes, memory, disk, output. Each is stopped long before the machine feels it.

No test lets one take more than some hundred processes, 0.1 GiB of memory or 0.2 GiB of disk: where a limit is larger
than that, what is tested is that it stands, and that asking for more than it allows is refused at once.
"""

import json
import mmap
import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pgo_agent.sandbox.errors import EnvironmentFault
from pgo_agent.sandbox.isolation import process, rlimits

from tests.sandbox.attacks.conftest import Attack
from tests.sandbox.attacks.inside import Seat

MOST = 100  # processes of the fork bombs here
BOMB = """
import json, os, resource, signal
most = resource.getrlimit(resource.RLIMIT_NPROC)
resource.setrlimit(resource.RLIMIT_NPROC, (min(GIVEN["most"], most[1]), most[1]))  # so as not to starve other tests
made = []
try:
    while len(made) < 2 * GIVEN["most"]:
        pid = os.fork()
        if not pid:
            signal.pause()
        made.append(pid)
except BlockingIOError:
    pass
for pid in made:
    os.kill(pid, signal.SIGKILL)
(OUT / "made").write_text(json.dumps([len(made), most]))
"""


def test_a_fork_bomb_is_bounded(attack: Attack) -> None:
    _, folder = attack(BOMB, most=MOST)
    made, (soft, hard) = json.loads((folder / "out" / "made").read_text())
    assert soft == hard == 4096
    assert made < MOST


@pytest.mark.skipif(os.geteuid() != 0, reason="only root ignores the limit on processes")
def test_without_a_box_a_fork_bomb_of_roots_is_not(unboxed: Attack) -> None:
    _, folder = unboxed(BOMB, most=MOST // 2)
    assert json.loads((folder / "out" / "made").read_text())[0] == 2 * (MOST // 2)


# memory ---------------------------------------------------------------------------------------------------------------

MAP = """
import mmap
try:
    mmap.mmap(-1, GIVEN["size"], mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)  # MAP_NORESERVE
    said = "had"
except (OSError, MemoryError) as e:
    said = f"refused: {e}"
(OUT / "said").write_text(said)
"""


def test_more_memory_than_half_the_machines_is_refused(attack: Attack) -> None:
    """Nothing is touched: this is about address space that could be."""
    _, folder = attack(MAP, size=rlimits.LIMITS[resource.RLIMIT_DATA] + mmap.PAGESIZE)
    assert (folder / "out" / "said").read_text().startswith("refused: [Errno 12]")


def test_outside_of_a_box_it_can_be_had() -> None:
    size = rlimits.LIMITS[resource.RLIMIT_DATA] + mmap.PAGESIZE
    mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000).close()  # MAP_NORESERVE


def test_a_hog_of_memory_ends_with_an_error_of_its_own(attack: Attack, seat: Seat) -> None:
    """As a machine with less memory would end it: the limit is lowered to what this test may take."""
    code = """
import resource
resource.setrlimit(resource.RLIMIT_DATA, (GIVEN["most"], GIVEN["most"]))
taken = []
try:
    while True:
        taken.append(bytearray(8 << 20))  # untouched: it takes address space alone
except MemoryError:
    taken.clear()
    (OUT / "said").write_text("refused")
"""
    ran, folder = attack(code, most=2 << 30 if seat.role != "compiler" else 96 << 20)
    assert not ran.killed and not ran.timed_out
    assert (folder / "out" / "said").read_text() == "refused"


def test_it_is_the_first_that_the_kernel_ends_when_memory_runs_out(attack: Attack) -> None:
    _, folder = attack("(OUT / 'said').write_text(Path('/proc/self/oom_score_adj').read_text())")
    assert (folder / "out" / "said").read_text() == "1000\n"
    assert int(Path("/proc/self/oom_score_adj").read_text()) < 1000


# processors -----------------------------------------------------------------------------------------------------------

URGENT = """
import os
try:
    os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0) - 1)
    said = "it may be more urgent"
except PermissionError:
    said = str(os.getpriority(os.PRIO_PROCESS, 0))
(OUT / "said").write_text(said)
"""


def test_a_hog_of_processors_lets_others_go_first(attack: Attack) -> None:
    _, folder = attack(URGENT)
    assert (folder / "out" / "said").read_text() == str(max(rlimits.NICE, os.nice(0)))
    assert rlimits.NICE > 0


# disk -----------------------------------------------------------------------------------------------------------------

FILL = """
import os, time
try:
    for i in range(10_000):
        fd = os.open(OUT / str(i), os.O_WRONLY | os.O_CREAT)
        if GIVEN["unlinked"]:
            os.unlink(OUT / str(i))
        os.write(fd, bytes(1 << 20))
        time.sleep(0.01)
except OSError as e:
    (OUT.parent / "tmp" / "said").write_text(str(e))
time.sleep(600)
"""
Disk = Callable[[int], Path]


@pytest.fixture
def disk(place: Path) -> Iterator[Path]:
    """A small file system that every user may enter."""
    mounted = place / "disk"
    mounted.mkdir()
    how = ["mount", "-t", "tmpfs", "-o", "size=96m,mode=755", "tmpfs", str(mounted)]
    if subprocess.run(how, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs root")
    yield mounted
    subprocess.run(["umount", "-l", str(mounted)], check=True)


def free(path: Path) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


@pytest.mark.parametrize("unlinked", [False, True], ids=["with files", "with files that have no name any more"])
def test_a_disk_is_never_filled(seat: Seat, disk: Path, unlinked: bool) -> None:
    before = free(disk)
    ran = seat.run_here(FILL, disk / "box", 60.0, unlinked=unlinked)
    assert ran.filled and not ran.timed_out and not ran.killed
    assert "ended: it left less than 4" in ran.output
    assert not (disk / "box" / "tmp" / "said").exists()
    assert free(disk) > before * 0.9  # what it wrote is gone at once


def test_without_a_box_a_disk_is_filled(disk: Path) -> None:
    with pytest.raises(OSError, match="No space left"):
        (disk / "file").write_bytes(bytes(97 << 20))


def test_a_disk_that_somebody_else_fills_is_not_held_against_the_process(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import time; (OUT / 'ready').touch(); time.sleep(600)"
    monkeypatch.setattr(process, "SETTLE_SECONDS", 0.5)  # nothing is given back here, however long it waits
    seat = Seat("none", "compiler")
    starter: Any = None
    with pytest.raises(EnvironmentFault, match=r"cannot write in .*: the disk has less than 4. MiB free"):
        starter = subprocess.Popen(["sh", "-c", f"while ! [ -e {disk}/box/out/ready ]; do sleep 0.05; done; "
                                    f"head -c 70000000 /dev/zero > {disk}/other"])  # fmt: skip
        seat.run_here(code, disk / "box", 60.0)
    assert starter.wait(10) == 0


# output ---------------------------------------------------------------------------------------------------------------


def test_a_flood_of_output_is_kept_to_its_end(attack: Attack) -> None:
    code = "import os\nfor i in range(64): os.write(1, b'x' * (1 << 20))\nos.write(1, b'the end')\nos._exit(0)"
    ran, folder = attack(code)
    assert len(ran.output) == process.OUTPUT_LIMIT
    assert ran.output.endswith("the end")
    assert (folder / "process.log").stat().st_size > 64 << 20


def test_a_flood_of_output_ends_at_the_largest_file(attack: Attack) -> None:
    """The limit is lowered to what this test may take; the same limit stands at 1 GiB before."""
    code = """
import os, resource
before = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    while True:
        os.write(1, b"x" * 65536)
except OSError as e:
    (OUT / "said").write_text(f"{before} {e.errno}")
"""
    _, folder = attack(code)
    assert (folder / "out" / "said").read_text() == f"{(1 << 30, 1 << 30)} 27"  # EFBIG
    assert (folder / "process.log").stat().st_size <= 1 << 20
