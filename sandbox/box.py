"""Runs one of our own modules in a box: no GPU, no network, no keys, one writable folder, a deadline.

What is covered, with bubblewrap (preferred) / with Landlock (where namespaces are forbidden):
  the file system is read-only but for the folder, and shows only the interpreter and its libraries  yes / reads: same
  network, sockets of any kind                                 none at all / none at all
  other processes cannot be seen or signalled                  yes / seen, but neither read nor (Linux 6.12) signalled
  files outside keep content, mode and times                   yes / yes; whether one exists can be found out
  keys of the session, namespaces, io_uring (`seccomp.py`)     yes / yes
  huge files, core dumps, more than 4096 processes             yes / yes
  a disk that fills up                                         yes / yes: the process is ended before
  more memory than half the machine's                          yes / yes, for one process; of several, these go first
  whatever it started ends with it                             yes / yes (before Linux 6.12 it can prevent that)
What is not covered: bugs of the Linux kernel, and side channels. Nothing in here ever holds a GPU.

As root, bubblewrap sets up the mounts and `setpriv` then drops to uid 65534: limits on processes ignore root.
"""

import contextlib
import ctypes
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from pgo_agent.sandbox import mounts, seccomp
from pgo_agent.sandbox.bundle.shelf import cannot_write, remove, room
from pgo_agent.sandbox.errors import EnvironmentFault, Killed, UsageFault

KINDS = ("bubblewrap", "landlock", "none")
ATTEMPTS = 3  # for a process that was killed from outside
_libc = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1
POLL_SECONDS = 0.1  # a disk takes some 0.2 GB in that time
LEAST_FREE = 1 << 30  # bytes that a boxed process must leave on the disk; half of what was free, where that is less
GRACE_SECONDS = 12.0  # for `landlock.py` to end what it keeps
SETTLE_SECONDS = 3.0  # for the kernel to give back the space of files that nobody has open any more
OUTPUT_LIMIT = 1 << 20  # bytes of what a boxed process prints that are kept
LIMITS = {
    resource.RLIMIT_CORE: 0,
    resource.RLIMIT_FSIZE: 1 << 30,
    resource.RLIMIT_NPROC: 4096,
    resource.RLIMIT_NOFILE: 4096,
    resource.RLIMIT_AS: 48 << 30,
    resource.RLIMIT_DATA: max(4 << 30, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2),
    resource.RLIMIT_CPU: 1800,  # ends even a process that nobody waits for any more
}


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


@dataclass(frozen=True)
class Box:
    """A way of isolating a process. `python` is the interpreter that runs inside."""

    kind: str
    python: str = sys.executable

    @property
    def isolates(self) -> bool:
        return self.kind != "none"

    def admit(self, foreign: bool) -> None:
        """Raises EnvironmentFault when code that is not the user's own would run without isolation."""
        if foreign and not self.isolates:
            raise EnvironmentFault(
                "no sandbox works on this machine, and this candidate is not your own code",
                "install bubblewrap (see `pgo-agent doctor`), or run where one works",
            )

    def run(
        self, module: str, folder: Path, seconds: float, args: Sequence[str] = (), env: Mapping[str, str] | None = None
    ) -> Ran:
        """Runs `python -m MODULE FOLDER ARGS` with FOLDER as its only writable place.

        Raises EnvironmentFault when the disk filled up meanwhile, and what the process wrote is not why.
        """
        folder = folder.resolve()
        _hand_over(folder)
        inside = Path("/box") if self.kind == "bubblewrap" else folder
        command = [self.python, "-B", "-m", module, str(inside), *args]
        with _log(folder) as log, _filter(self.kind) as filters:
            wrapped = self._wrapped(command, folder, *filters)
            ends_by = signal.SIGTERM if self.kind == "landlock" else signal.SIGKILL
            return _run(wrapped, self._environment(inside, env or {}), folder, log, seconds, filters, ends_by)

    def _wrapped(self, command: list[str], folder: Path, *filters: int) -> list[str]:
        if self.kind == "bubblewrap":
            return [*mounts.bubblewrap(self.python, folder, *filters), *command]
        if self.kind == "landlock":
            readable = [str(p) for p in (*mounts.readable(self.python), mounts.PACKAGE, mounts.import_root())]
            return [self.python, "-m", "pgo_agent.sandbox.landlock", str(folder), *readable, "--", *command]
        return command

    def _environment(self, inside: Path, extra: Mapping[str, str]) -> dict[str, str]:
        bubbled = self.kind == "bubblewrap"
        home = "/tmp" if bubbled else str(inside / "tmp")
        ours = "/pgo" if bubbled else str(mounts.import_root())
        return {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": home,
            "TMPDIR": home,
            "LANG": "C.UTF-8",
            "TRITON_CACHE_DIR": f"{home}/triton",
            "CUDA_VISIBLE_DEVICES": "",
            "TRITON_DEFAULT_FP_FUSION": "1",
            "PYTHONPATH": os.pathsep.join([ours, *map(str, mounts.extra_paths())]),
            "PYTHONHASHSEED": "0",
            "PYTHONSAFEPATH": "1",
            "PYTHONNOUSERSITE": "1",
            "USER": "nobody",
            "TORCHINDUCTOR_CACHE_DIR": f"{home}/inductor",
            **extra,
        }


def choose(wanted: str = "auto", python: str = sys.executable) -> Box:
    """The best box that works here, or the one that is asked for. Raises when that one does not work."""
    if wanted not in ("auto", *KINDS):
        raise UsageFault(f"unknown sandbox '{wanted}'", f"choose one of: auto, {', '.join(KINDS)}")
    if wanted != "auto":
        problem = problem_with(wanted, python)
        if problem:
            raise EnvironmentFault(f"the sandbox '{wanted}' does not work here: {problem}", "see `pgo-agent doctor`")
        return Box(wanted, python)
    return Box(next(k for k in KINDS if not problem_with(k, python)), python)


@cache
def problem_with(kind: str, python: str = sys.executable) -> str:
    """Why this kind of box does not work here; empty when it does. It is tried, not guessed."""
    if kind == "none":
        return ""
    if kind == "bubblewrap" and not shutil.which("bwrap"):
        return "bubblewrap is not installed (Debian, Ubuntu: apt-get install bubblewrap)"
    import tempfile

    for _ in range(ATTEMPTS):
        with tempfile.TemporaryDirectory(prefix="pgo-probe-") as name:
            folder = Path(name)
            ran = Box(kind, python).run("pgo_agent.sandbox.probe", folder, 30)
            fine = ran.code == 0 and (folder / "out" / "probe").is_file()
        if fine:
            return ""
        room(Path(tempfile.gettempdir()))
        if not ran.killed:  # that would say nothing about the box
            return ran.output.strip()[-300:] or f"exit status {ran.code}"
    raise killed("probing")


def killed(what: str) -> Killed:
    """The fault of a process that was killed ATTEMPTS times in a row."""
    hint = "free some memory if it ran out (`dmesg` says so), then `pgo-agent resume`"
    return Killed(f"the {what} process was killed {ATTEMPTS} times in a row (SIGKILL)", hint)


# how a process is started and ended -----------------------------------------------------------------------------------


def _run(
    command: list[str],
    env: Mapping[str, str],
    folder: Path,
    log: int,
    seconds: float,
    inherited: Sequence[int],
    ends_by: signal.Signals,
) -> Ran:
    started, least = time.monotonic(), min(LEAST_FREE, _free(folder) // 2)
    process = subprocess.Popen(
        command,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        cwd="/",
        start_new_session=True,
        pass_fds=inherited,
        preexec_fn=partial(_limit, os.getpid(), ends_by),
    )
    try:
        why = _ending(process, folder, started + seconds, least)
    finally:
        if process.poll() is None:
            process.send_signal(ends_by)  # SIGTERM: `landlock.py` ends what it keeps, in other process groups as well
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
    if why == "disk":
        _blame_for_the_disk(folder, least)
    os.lseek(log, max(0, os.fstat(log).st_size - OUTPUT_LIMIT), os.SEEK_SET)
    text = os.read(log, OUTPUT_LIMIT).decode(errors="replace")
    text += f"\nended: it left less than {least >> 20} MiB free on the disk" if why == "disk" else ""
    return Ran(-signal.SIGKILL if why else code, text, why == "time", time.monotonic() - started, why == "disk")


def _ending(process: "subprocess.Popen[bytes]", folder: Path, deadline: float, least: int) -> str:
    """Waits for the process: empty when it ended by itself, 'time' at the deadline, 'disk' when that is nearly full."""
    while True:
        left = deadline - time.monotonic()
        try:
            process.wait(min(POLL_SECONDS, max(0.0, left)))
            return ""
        except subprocess.TimeoutExpired:
            if left <= 0:
                return "time"
            if _free(folder) < least:
                return "disk"


def _free(folder: Path) -> int:
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def _blame_for_the_disk(folder: Path, least: int) -> None:
    """Takes away what the process wrote. Raises EnvironmentFault when the disk stays full: somebody else filled it."""
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
    for what, most in LIMITS.items():
        _, hard = resource.getrlimit(what)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (most, hard if what == resource.RLIMIT_NOFILE else most))
    with contextlib.suppress(OSError), Path("/proc/self/oom_score_adj").open("w") as file:
        file.write("1000")  # short of memory, the kernel ends it before anything of the user's


@contextlib.contextmanager
def _filter(kind: str) -> Iterator[tuple[int, ...]]:
    """The seccomp filter as an open file for bubblewrap, which installs it last. (`landlock.py` installs its own.)"""
    if kind != "bubblewrap":
        yield ()
        return
    fd = os.memfd_create("filter")
    try:
        os.write(fd, seccomp.program(attributes=False))
        os.lseek(fd, 0, os.SEEK_SET)
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


def _hand_over(folder: Path) -> None:
    """Makes the folder readable, and out/ and tmp/ writable, for whoever runs inside; fixes the times of its files."""
    for name in ("out", "tmp"):
        (folder / name).mkdir(exist_ok=True)
        if os.geteuid() == 0:
            os.chown(folder / name, mounts.NOBODY, mounts.NOBODY)
    folder.chmod(0o755)
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            os.utime(path, (0, 0))  # some compilers write a file's time into what they make
            path.chmod(0o644)
