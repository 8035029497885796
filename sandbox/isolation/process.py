"""How a boxed process is started, watched and ended: a deadline, a disk that must not fill up, nothing left behind.

What a box is made of is `box.py`'s and `bubblewrap.py`'s. A process is begun anew, or forked from one that has what it
imports (`forkserver.py`); both come to an end here.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pgo_agent.sandbox.bundle.store import cannot_write
from pgo_agent.sandbox.isolation import bubblewrap, forkserver, rlimits, seccomp
from pgo_agent.sandbox.temporary_folders import remove

POLL_SECONDS = 0.1  # a disk takes some 0.2 GB in that time
LEAST_FREE = 1 << 30  # bytes that a boxed process must leave on the disk; half of what was free, where that is less
GRACE_SECONDS = 12.0  # for `landlock.py` to end what it keeps
SETTLE_SECONDS = 3.0  # for the kernel to give back the space of files that nobody has open any more
OUTPUT_LIMIT = 1 << 20  # bytes of what a boxed process prints that are kept
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


@dataclass(frozen=True)
class Ran:
    code: int  # exit status; negative: the signal that ended it
    output: str  # stdout and stderr together, the last OUTPUT_LIMIT bytes
    timed_out: bool  # ended at its deadline
    seconds: float  # wall clock
    filled: bool = False  # ended because it filled the disk

    @property
    def killed(self) -> bool:
        """Whether somebody else's SIGKILL ended it (bubblewrap passes that on as 137)."""
        return not self.timed_out and not self.filled and self.code in (-signal.SIGKILL, 128 + signal.SIGKILL)


class ProcessSetup(NamedTuple):
    """Where a process runs and what it prints to."""

    folder: Path
    log: int  # open file
    filters: tuple[int, ...]  # seccomp programs as open files, for bubblewrap
    env: Mapping[str, str]
    seconds: float  # its deadline


@contextlib.contextmanager
def place(kind: str, folder: Path, env: Mapping[str, str], seconds: float) -> Iterator[ProcessSetup]:
    with _log(folder) as log, _filter(kind) as filters:
        yield ProcessSetup(folder, log, filters, env, seconds)


def anew(command: list[str], at: ProcessSetup, ends_by: signal.Signals) -> Ran:
    """Run a command that boxes itself, to its end. SIGTERM: `landlock.py` ends what it keeps, in other groups as well.

    Raises EnvironmentFault when the disk filled up meanwhile, and what the process wrote is not why.
    """
    started, least = time.monotonic(), _least(at)
    process = _popen(command, at, ends_by)
    try:
        why = _ending(process.wait, at, started, least)
    finally:
        code = _end(process, ends_by)
    return _ran(at, why, code, started, least)


def forked(python: str, module: str, words: Sequence[str], at: ProcessSetup) -> Ran:
    """Run Python with these words in a box of bubblewrap's, forked from a process that has what the module imports.

    Raises forkserver.Cold where that cannot be, before anything ran; EnvironmentFault as `anew` does.
    """
    started, least, why, code = time.monotonic(), _least(at), "", forkserver.KILLED
    with _held(python, at) as (holder, box):
        if box is None:
            return _ran(at, "", _end(holder, signal.SIGKILL), started, least)
        with forkserver.entered(python, module, at.env, box, at.log, words) as process:
            why = _ending(process.wait, at, started, least)
            code = process.code
    return _ran(at, why, code, started, least)


@contextlib.contextmanager
def _held(python: str, at: ProcessSetup) -> Iterator[tuple["subprocess.Popen[bytes]", int | None]]:
    """A box that a shell holds open, and an open file for a process in it (pidfd); None when it does not come up."""
    read, info = os.pipe()
    limits = rlimits.words()
    command = [*limits, *bubblewrap.bubblewrap(python, at.folder, *at.filters, info=info), *forkserver.WAIT]
    holder = _popen(command, at, None if limits else signal.SIGKILL, (info,), subprocess.PIPE)
    os.close(info)
    box = None
    try:
        if _ready(holder, at.seconds):
            box = os.pidfd_open(json.loads(os.read(read, 4096))["child-pid"])
        yield holder, box
    finally:
        _end(holder, signal.SIGKILL)
        if box is not None:
            _gone(box)
        os.close(read)
        for stream in (holder.stdin, holder.stdout):
            if stream:
                stream.close()


def _gone(box: int) -> None:
    """Wait for the first process of a box, which ends when all others in it have: bubblewrap's end comes before."""
    ended = select.poll()
    ended.register(box, select.POLLIN)
    ended.poll(1000 * GRACE_SECONDS)
    os.close(box)


def _ready(holder: "subprocess.Popen[bytes]", seconds: float) -> bool:
    output = holder.stdout
    return bool(output and select.select([output], [], [], seconds)[0] and output.read(1))


def _popen(
    command: list[str],
    at: ProcessSetup,
    ends_by: signal.Signals | None,
    more: tuple[int, ...] = (),
    piped: int | None = None,
) -> "subprocess.Popen[bytes]":
    """Begin a command. `ends_by`: what ends it with us. For that, and for its limits, we are forked, which takes 10 ms
    and more of a process with much memory. None: the command limits itself, and bubblewrap ends it with us."""
    for fd in at.filters:
        os.lseek(fd, 0, os.SEEK_SET)  # it was written, or read by a bubblewrap before
    return subprocess.Popen(
        command,
        env=dict(at.env),
        stdin=piped or subprocess.DEVNULL,
        stdout=piped or at.log,
        stderr=at.log,
        cwd="/",
        bufsize=0,
        start_new_session=True,
        pass_fds=(*at.filters, *more),
        preexec_fn=None if ends_by is None else partial(_limit, os.getpid(), ends_by),
    )


def _end(process: "subprocess.Popen[bytes]", ends_by: signal.Signals) -> int:
    """End a process and what it keeps; return its exit status."""
    if process.poll() is None:
        process.send_signal(ends_by)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def _ran(at: ProcessSetup, why: str, code: int, started: float, least: int) -> Ran:
    if why == "disk":
        _blame_for_the_disk(at.folder, least)
    os.lseek(at.log, max(0, os.fstat(at.log).st_size - OUTPUT_LIMIT), os.SEEK_SET)
    text = os.read(at.log, OUTPUT_LIMIT).decode(errors="replace")
    text += f"\nended: it left less than {least >> 20} MiB free on the disk" if why == "disk" else ""
    return Ran(-signal.SIGKILL if why else code, text, why == "time", time.monotonic() - started, why == "disk")


def _least(at: ProcessSetup) -> int:
    return min(LEAST_FREE, _free(at.folder) // 2)


def _ending(wait: Callable[[float], object], at: ProcessSetup, started: float, least: int) -> str:
    """Wait for the process: empty when it ended by itself, 'time' at the deadline, 'disk' when that is nearly full."""
    while True:
        left = started + at.seconds - time.monotonic()
        try:
            wait(min(POLL_SECONDS, max(0.0, left)))
            return ""
        except subprocess.TimeoutExpired:
            if left <= 0:
                return "time"
            if _free(at.folder) < least:
                return "disk"


def _free(folder: Path) -> int:
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def _blame_for_the_disk(folder: Path, least: int) -> None:
    """Take away what the process wrote. Raises EnvironmentFault when the disk stays full: somebody else filled it."""
    for name in ("out", "tmp"):
        remove(folder / name)
        (folder / name).mkdir()
    end = time.monotonic() + SETTLE_SECONDS  # bubblewrap may return a moment before its last process lets go of a file
    while _free(folder) < least and time.monotonic() < end:
        time.sleep(POLL_SECONDS)
    if _free(folder) < least:
        raise cannot_write(folder, f"the disk has less than {least >> 20} MiB free")


def _limit(parent: int, ends_by: int) -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, ends_by, 0, 0, 0)  # it ends with the thread that waits for it
    if os.getppid() != parent:
        os._exit(1)  # which was killed before it could be said
    rlimits.apply()


@contextlib.contextmanager
def _filter(kind: str) -> Iterator[tuple[int, ...]]:
    """The seccomp filter as an open file for bubblewrap, which installs it last. (`landlock.py` installs its own.)"""
    if kind != "bubblewrap":
        yield ()
        return
    fd = os.memfd_create("filter")
    try:
        os.write(fd, seccomp.program(attributes=False))
        yield (fd,)
    finally:
        os.close(fd)


@contextlib.contextmanager
def _log(folder: Path) -> Iterator[int]:
    path = folder / "process.log"
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        yield fd
    finally:
        os.close(fd)
