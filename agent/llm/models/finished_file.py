"""Reads a file that somebody else writes, once it is complete, whoever writes it and however.

It is complete if it is not empty, no process has it open for writing (the kernel knows, if file system and rights allow
to ask), and its size and time stay the same for a moment. Only plain files are read: a link could lead to a file of
this user that its writer may not read. Relies on Linux for leases. It does not interpret the text.
"""

import errno
import fcntl
import os
import signal
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pgo_agent.sandbox.errors import EnvironmentFault

SETTLED = 1.0  # seconds in which nothing changes
Stamp = tuple[int, int, int, int]  # device, inode, size, time


class NotYet(Exception):
    """The file cannot be read yet; the message follows its name."""


@dataclass(frozen=True)
class Dropped:
    data: bytes  # its beginning, where it is longer than asked for
    written: float  # when it was changed last


def read(path: Path, most: int) -> Dropped:
    """Return the file at `path`, up to `most` bytes. Raises NotYet, or EnvironmentFault if it is no plain file."""
    before = _looked(path)
    time.sleep(SETTLED)
    with _opened(path) as file:
        if before != _stamp(file) or _being_written(file):
            raise NotYet("is still being written")
        data = _read(file, most)
        if before != _stamp(file):
            raise NotYet("is still being written")
    if not data.strip():
        raise NotYet("is empty")
    return Dropped(data, before[3] / 1e9)


def _looked(path: Path) -> Stamp:
    with _opened(path) as file:
        if _being_written(file):
            raise NotYet("is still being written")
        stamp = _stamp(file)
    if not stamp[2]:
        raise NotYet("is empty")
    return stamp


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Open the file, without following a link or waiting for the other end of a pipe."""
    with ExitStack() as closing:
        try:
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            closing.callback(os.close, file)
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise _refused(f"{path} is no plain file")
            yield file
        except FileNotFoundError:
            raise NotYet("is not there") from None
        except OSError as e:
            link = e.errno == errno.ELOOP
            raise _refused(
                f"{path} {'is a link: none is followed' if link else f'cannot be read: {e.strerror}'}"
            ) from None


def _refused(problem: str) -> EnvironmentFault:
    return EnvironmentFault(problem, "put a plain file in its place, then `pgo-agent resume` goes on")


def _stamp(file: int) -> Stamp:
    status = os.fstat(file)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _being_written(file: int) -> bool:
    """Whether the kernel knows of a process that has it open for writing; False if it cannot tell.

    A read lease is granted only for files that nobody writes; it is given back at once. Its signal is replaced by an
    ignored one, as the default would end this process if somebody opened the file in between.
    """
    with suppress(OSError):  # not our file, or a file system without leases
        fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
        try:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except BlockingIOError:
            return True
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False


def _read(file: int, most: int) -> bytes:
    parts, left = [], most
    while left and (part := os.read(file, min(left, 1 << 20))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
