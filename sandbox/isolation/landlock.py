"""`python -m pgo_agent.sandbox.isolation.landlock FOLDER READABLE... -- COMMAND...`: runs COMMAND restricted, and
outlives it.

Landlock (Linux 5.13 or newer) needs no privilege and no namespace, so it works inside most containers. Relies on the
system calls 444 to 446 through ctypes, and on `seccomp.py` for what Landlock leaves open. It does not hide other
processes. As root COMMAND runs as uid 65534; where the interpreter lies in a folder that this user may not enter, it
does not work at all.

This process itself stays as it is: every orphan below it becomes its child (PR_SET_CHILD_SUBREAPER), and it ends when
COMMAND has, or at SIGTERM, after the last of them. On Linux before 6.12 they could kill it first, and stay.
"""

import contextlib
import ctypes
import os
import signal
import struct
import sys
import time
from pathlib import Path

from pgo_agent.sandbox.isolation import seccomp
from pgo_agent.sandbox.isolation.bubblewrap import NOBODY

_CREATE, _ADD, _RESTRICT, _NO_NEW_PRIVS = 444, 445, 446, 38
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_EXECUTE, _READ_FILE, _READ_DIR = 1, 4, 8
_END_SECONDS = 10.0  # most that ending what COMMAND left behind may take
_libc = ctypes.CDLL(None, use_errno=True)


def abi() -> int:
    """Return the version of Landlock that this kernel offers; below 1 when it offers none."""
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
    seccomp.install(attributes=True)


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


# what stays outside ---------------------------------------------------------------------------------------------------


def keep(folder: Path, readable: list[Path], command: list[str]) -> int:
    """Run the command restricted; return its exit status (128 and the signal that ended it) when nothing is left."""
    _ok(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
    ours = os.getpid()
    pid = os.fork()
    if not pid:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _become(ours, folder, readable, command)
    try:
        while True:
            ended, status = os.wait()
            if ended == pid:
                return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
    finally:
        _end_all()


def _become(parent: int, folder: Path, readable: list[Path], command: list[str]) -> None:
    try:
        os.setpgid(0, 0)  # a signal to its own group must not reach the process that cleans up
        if os.geteuid() == 0:  # Landlock alone would leave root's other powers: hostname, clock, others' memory
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        _ok(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
        if os.getppid() == parent:
            restrict(folder, readable)
            os.execv(command[0], command)
    except BaseException as e:
        print(f"{type(e).__name__}: {e}", file=sys.stderr, flush=True)
    finally:
        os._exit(1)


def _end_all() -> None:
    """Kill children until none is left: a process that loses its parent becomes one."""
    end = time.monotonic() + _END_SECONDS
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < end:
            for pid in _children():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _children() -> list[int]:
    children = []
    for entry in os.scandir("/proc"):
        with contextlib.suppress(OSError, ValueError):
            stat = Path(entry.path, "stat").read_text() if entry.name.isdigit() else ") ? 0"
            if int(stat.rpartition(")")[2].split()[1]) == os.getpid():
                children.append(int(entry.name))
    return children


def _stop(*_signal: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(128 + signal.SIGTERM)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _stop)
    split = sys.argv.index("--")
    sys.exit(keep(Path(sys.argv[1]), [Path(p) for p in sys.argv[2:split]], sys.argv[split + 1 :]))
