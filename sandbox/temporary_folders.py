"""Temporary folders, whose owner removes them, or else the next process that makes one.

A process that is killed removes nothing, and a box may hold gigabytes of inputs. So each folder is locked for as long
as its process lives, and whoever makes his first one removes those that nobody holds. Only folders of this user with
names of this form are looked at. Relies on `flock`; where a file system has none, nothing that was left is removed.
"""

import atexit
import contextlib
import fcntl
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_NAME = re.compile(r"pgo-[a-z]+-[a-z0-9_]{8}\.tmp\Z")
_NEW = 60.0  # seconds in which a folder may not be locked yet


@contextlib.contextmanager
def temporary_folder(what: str) -> Iterator[Path]:
    """Yield an empty folder, removed afterwards. `what`: a word of its name, in small letters."""
    folder, held = _made(what)
    try:
        yield folder
    finally:
        remove(folder)
        os.close(held)


def folder_of_process(what: str) -> Path:
    """Return an empty folder that is removed when this process ends, and not when a fork of it does."""
    folder, _ = _made(what)
    owner = os.getpid()
    atexit.register(lambda: remove(folder) if os.getpid() == owner else None)
    return folder


def remove(path: Path) -> None:
    """Remove a folder that a boxed process may have written to."""
    # rm, because what a boxed process nests may be deeper than Python's stack
    subprocess.run(["rm", "-rf", str(path)], check=False, stderr=subprocess.DEVNULL)


def _made(what: str) -> tuple[Path, int]:
    """Return a new folder and the open file that locks it."""
    _remove_left()
    folder = Path(tempfile.mkdtemp(prefix=f"pgo-{what}-", suffix=".tmp"))
    return folder, _locked(folder)


@cache
def _remove_left() -> None:
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if _NAME.match(entry.name) and _is_old(entry):
                _remove_unheld(Path(entry.path))


def _is_old(entry: os.DirEntry[str]) -> bool:
    with contextlib.suppress(OSError):
        status = entry.stat(follow_symlinks=False)
        ours = entry.is_dir(follow_symlinks=False) and status.st_uid == os.geteuid()
        return ours and status.st_ctime < time.time() - _NEW
    return False


def _remove_unheld(folder: Path) -> None:
    with contextlib.suppress(OSError):
        held = _opened(folder)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove(folder)
        finally:
            os.close(held)


def _locked(folder: Path) -> int:
    held = _opened(folder)
    with contextlib.suppress(OSError):
        fcntl.flock(held, fcntl.LOCK_EX)
    return held


def _opened(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
