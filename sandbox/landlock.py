"""`python -m pgo_agent.sandbox.landlock FOLDER READABLE... -- COMMAND...`: restricts itself, then becomes COMMAND.

Landlock (Linux 5.13 or newer) needs no privilege and no namespace, so it works inside most containers. Relies on the
system calls 444 to 446 through ctypes. It does not stop UDP, connecting to UNIX sockets by path, or changing the mode
of files that the user owns, and it does not hide other processes. As root it becomes uid 65534 first; where the
interpreter lies in a folder that this user may not enter, it does not work at all.
"""

import ctypes
import os
import struct
import sys
from pathlib import Path

from pgo_agent.sandbox.mounts import NOBODY

_CREATE, _ADD, _RESTRICT, _NO_NEW_PRIVS = 444, 445, 446, 38
_EXECUTE, _READ_FILE, _READ_DIR = 1, 4, 8
_libc = ctypes.CDLL(None, use_errno=True)


def abi() -> int:
    """The version of Landlock that this kernel offers; below 1 when it offers none."""
    return int(_libc.syscall(_CREATE, None, 0, 1))


def restrict(folder: Path, readable: list[Path]) -> None:
    """Read and execute below `readable`, read below `folder`, write only in its out/ and tmp/. Raises OSError."""
    version = abi()
    if version < 4:
        raise OSError(f"Landlock version {version}: version 4 (Linux 6.7) is needed to refuse the network")
    every = (1 << (16 if version >= 5 else 15)) - 1  # all rights on files that this version knows
    rules = struct.pack("=QQQ", every, 3, 3 if version >= 6 else 0)  # files; TCP bind and connect; signals, sockets
    fd = _libc.syscall(_CREATE, rules, len(rules) if version >= 6 else 16, 0)
    _ok(fd)
    look = _EXECUTE | _READ_FILE | _READ_DIR
    for path in [*readable, Path("/lib"), Path("/lib64"), Path("/bin"), Path("/proc"), folder]:
        _allow(fd, path, look)
    for path in (Path("/dev/null"), Path("/dev/zero"), Path("/dev/urandom")):
        _allow(fd, path, _READ_FILE | 2)
    for name in ("out", "tmp"):
        _allow(fd, folder / name, every)
    _ok(_libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0))
    _ok(_libc.syscall(_RESTRICT, fd, 0))


def _allow(ruleset: int, path: Path, rights: int) -> None:
    if not path.exists():
        return
    if not path.is_dir():
        rights &= _EXECUTE | 2 | _READ_FILE
    parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        _ok(_libc.syscall(_ADD, ruleset, 1, struct.pack("=Qi", rights, parent), 0))
    finally:
        os.close(parent)


def _ok(result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


if __name__ == "__main__":
    split = sys.argv.index("--")
    if os.geteuid() == 0:  # Landlock alone would leave root's other powers: hostname, clock, other processes' memory
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    restrict(Path(sys.argv[1]), [Path(p) for p in sys.argv[2:split]])
    os.execv(sys.argv[split + 1], sys.argv[split + 1 :])
