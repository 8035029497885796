"""The right to use a GPU: a lock on a file of its UUID, which one process of this user holds at a time.

The kernel drops it when its holder is gone. Judge processes inherit it (`fd`), so that a kernel which outlives a killed
run by a moment still holds the GPU. Who waits stands in a line of one: nobody gets it twice in a row while another one
waits, unless that one was stopped. Processes see each other where they share the runtime folder: not those of other
users, or of other containers.
"""

import contextlib
import fcntl
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pgo_agent.sandbox.errors import EnvironmentFault
from pgo_agent.sandbox.judge.gpus import Gpu

POLL = 0.1  # seconds between looks
STOPPED = 2.0  # seconds in which one who stands in line takes what is free, or is passed by
Told = Callable[[Gpu, str], None]  # of a GPU that is waited for, and of who holds it


class GpuLock:
    """A GPU's, as one holder has it: two of these exclude each other, within a process, too."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self._depth = 0
        self._lying: float | None = None  # since when nobody took it who stands in line
        self._files: list[int] = []  # the lock, and the place in the line

    @property
    def fd(self) -> int:
        """Open while this lives; a child that has it keeps the lock. Raises EnvironmentFault."""
        return self._opened()[0]

    def taken(self) -> bool:
        """Takes it, if it is free; else stands in line. Raises EnvironmentFault."""
        lock, line = self._opened()
        if self._depth == 0:
            if not (_flock(lock) if _flock(line) else self._left_lying(lock)):
                return False
            self._lying = None
            os.ftruncate(lock, 0)
            os.pwrite(lock, str(os.getpid()).encode(), 0)
            self.left()
        self._depth += 1
        return True

    def _left_lying(self, lock: int) -> bool:
        """Takes the lock past somebody in line who does not take it: a process that was stopped, say."""
        if not _flock(lock):
            self._lying = None
            return False
        now = time.monotonic()
        self._lying = self._lying or now
        if now - self._lying >= STOPPED:
            return True
        fcntl.flock(lock, fcntl.LOCK_UN)
        return False

    def left(self) -> None:
        """Leaves the line."""
        fcntl.flock(self._opened()[1], fcntl.LOCK_UN)

    def free(self) -> None:
        """Gives it back, as often as it was taken."""
        self._depth -= 1
        if self._depth == 0:
            fcntl.flock(self.fd, fcntl.LOCK_UN)

    @property
    def holder(self) -> str:
        """Who has it, or had it last. Nobody knows whom one waits for that is about to say so, or stands in line."""
        told = os.pread(self.fd, 20, 0).decode(errors="replace")
        return "another process" if told in ("", str(os.getpid())) else f"process {told}"

    @contextlib.contextmanager
    def turn(self, told: Told) -> Iterator[float]:
        """Holds it, and gives the seconds that were waited. `told` is told when there is somebody to wait for; it may
        take its time, for nobody stands in line meanwhile."""
        began = time.monotonic()
        try:
            if not self.taken():
                self.left()
                told(self.gpu, self.holder)
                while not self.taken():
                    time.sleep(POLL)
        except BaseException:
            self.left()
            raise
        try:
            yield time.monotonic() - began
        finally:
            self.free()

    def _opened(self) -> list[int]:
        if not self._files:
            name = re.sub(r"[^\w.-]", "-", self.gpu.uuid)
            place = folder()
            self._files = [_open(place / f"gpu-{name}.{part}") for part in ("lock", "line")]
        return self._files

    def __del__(self) -> None:
        for fd in self._files:
            with contextlib.suppress(OSError):
                os.close(fd)


def folder() -> Path:
    """Where this user's processes meet, made if need be: $XDG_RUNTIME_DIR, or else /run/user/ID or /tmp.

    Raises EnvironmentFault where it is somebody else's.
    """
    user = os.getuid()
    own = Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{user}")
    usable = own.is_dir() and os.access(own, os.W_OK | os.X_OK)
    place = own / "pgo-agent" if usable else Path(f"/tmp/pgo-agent-{user}")
    try:
        place.mkdir(mode=0o700, exist_ok=True)
        found = place.lstat()
    except OSError as e:
        raise EnvironmentFault(f"cannot lock a GPU: {e}", "point XDG_RUNTIME_DIR at a folder of yours") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != user:
        raise EnvironmentFault(f"cannot lock a GPU: {place} is somebody else's", "point XDG_RUNTIME_DIR at your own")
    return place


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as e:
        raise EnvironmentFault(f"cannot lock a GPU: {e}", "make that a file that you may write") from None


def _flock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
