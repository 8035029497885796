"""Locks on parts of a file that several processes write: each part is a byte, far behind anything that is in it.

They are Linux's locks of open file descriptions (`man 2 F_OFD_SETLK`): gone with the process that held them, and not
given up when another part of that process closes the same file, as POSIX record locks are. Over NFS they hold, too.
"""

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FAR = 1 << 62  # bytes: where the parts begin
FLOCK = "hhqqi4x"  # of Linux on 64 bits: kind, whence, start, length, process (0: of no process)


@contextmanager
def held(file: Path, part: int, wait: bool = True) -> Iterator[bool]:
    """Hold the lock on a part while the block runs; yield whether it was free, which it always is with `wait`.

    Makes the file where there is none. Raises OSError where it cannot be opened or locked.
    """
    fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        yield _locked(fd, part, wait)
    finally:
        os.close(fd)


def _locked(fd: int, part: int, wait: bool) -> bool:
    lock = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, FAR + part, 1, 0)
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK, lock)
    except BlockingIOError:
        return False
    return True
