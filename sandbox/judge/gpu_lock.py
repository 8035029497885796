"""The right to use a GPU: a lock on a file named by its UUID. One process of this user holds it at a time.

The operating system drops the lock when its holder is gone. Judge processes inherit it (`fd`): a kernel that briefly
outlives a killed run still holds the GPU. A second lock is a queue for one waiter, so that nobody gets the GPU twice in
a row while another process waits, unless that process was stopped. Only processes that share the runtime folder see
each other, so not those of other users or containers.
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
STOPPED = 2.0  # seconds after which a waiter that does not take a free lock is passed by
OnWait = Callable[[Gpu, str], None]  # called with the GPU and its holder


class GpuLock:
    """The lock of one GPU. Two objects exclude each other, also within one process."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self._depth = 0
        self._lying: float | None = None  # since when the waiter has not taken a free lock
        self._files: list[int] = []  # the lock, and the queue

    @property
    def fd(self) -> int:
        """Return the open file; a child that inherits it keeps the lock. Raises EnvironmentFault."""
        return self._opened()[0]

    def taken(self) -> bool:
        """Take the lock if it is free, else join the queue; say which. Raises EnvironmentFault."""
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
        """Take the lock past a waiter that does not take it, such as a stopped process."""
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
        """Leave the queue."""
        fcntl.flock(self._opened()[1], fcntl.LOCK_UN)

    def free(self) -> None:
        """Release the lock, as often as it was taken."""
        self._depth -= 1
        if self._depth == 0:
            fcntl.flock(self.fd, fcntl.LOCK_UN)

    @property
    def holder(self) -> str:
        """Describe who has the lock, or had it last. A new holder may not have written its number yet."""
        pid = os.pread(self.fd, 20, 0).decode(errors="replace")
        return "another process" if pid in ("", str(os.getpid())) else f"process {pid}"

    @contextlib.contextmanager
    def turn(self, on_wait: OnWait) -> Iterator[float]:
        """Hold the lock; give the seconds waited. `on_wait` is called before a wait, outside of the queue."""
        began = time.monotonic()
        try:
            if not self.taken():
                self.left()
                on_wait(self.gpu, self.holder)
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
    """Return the folder of the locks, made if need be: in $XDG_RUNTIME_DIR, else /run/user/ID, else /tmp.

    Raises EnvironmentFault where it belongs to somebody else.
    """
    user = os.getuid()
    base = Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{user}")
    usable = base.is_dir() and os.access(base, os.W_OK | os.X_OK)
    place = base / "pgo-agent" if usable else Path(f"/tmp/pgo-agent-{user}")
    try:
        place.mkdir(mode=0o700, exist_ok=True)
        status = place.lstat()
    except OSError as e:
        raise EnvironmentFault(f"cannot lock a GPU: {e}", "point XDG_RUNTIME_DIR at a folder of yours") from None
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != user:
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
