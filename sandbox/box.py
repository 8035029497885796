"""Runs one of our own modules in a box: no GPU, no network, no keys, one writable folder, a deadline.

What is covered, with bubblewrap (preferred) / with Landlock (where namespaces are forbidden):
  the file system is read-only but for the folder, and shows only the interpreter and its libraries  yes / reads: same
  network                                                      none at all / TCP refused; UDP and UNIX sockets are not
  other processes cannot be seen or signalled                  yes / seen, but neither read nor (Linux 6.12) signalled
  files outside keep content and mode                          yes / content; the mode of the user's own files is not
  huge files, core dumps, more than 4096 processes             yes / yes
  whatever it started ends with it                             yes / its process group does
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

from pgo_agent.sandbox import mounts
from pgo_agent.sandbox.bundle.shelf import room
from pgo_agent.sandbox.errors import EnvironmentFault, Killed, UsageFault

KINDS = ("bubblewrap", "landlock", "none")
ATTEMPTS = 3  # for a process that was killed from outside
_libc = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1
OUTPUT_LIMIT = 1 << 20  # bytes of what a boxed process prints that are kept
_LIMITS = {
    resource.RLIMIT_CORE: 0,
    resource.RLIMIT_FSIZE: 1 << 30,
    resource.RLIMIT_NPROC: 4096,
    resource.RLIMIT_NOFILE: 4096,
    resource.RLIMIT_AS: 48 << 30,
    resource.RLIMIT_CPU: 1800,  # ends even a process that nobody waits for any more
}


@dataclass(frozen=True)
class Ran:
    code: int  # exit status; negative: the signal that ended it
    output: str  # stdout and stderr together, the last OUTPUT_LIMIT bytes
    timed_out: bool  # ended at its deadline
    seconds: float  # wall clock

    @property
    def killed(self) -> bool:
        """Whether somebody else's SIGKILL ended it (bubblewrap passes that on as 137)."""
        return not self.timed_out and self.code in (-signal.SIGKILL, 128 + signal.SIGKILL)


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
        """Runs `python -m MODULE FOLDER ARGS` with FOLDER as its only writable place."""
        folder = folder.resolve()
        _hand_over(folder)
        inside = Path("/box") if self.kind == "bubblewrap" else folder
        command = [self.python, "-B", "-m", module, str(inside), *args]
        with _log(folder) as log:
            return _run(self._wrapped(command, folder), self._environment(inside, env or {}), log, seconds)

    def _wrapped(self, command: list[str], folder: Path) -> list[str]:
        if self.kind == "bubblewrap":
            return [*mounts.bubblewrap(self.python, folder), *command]
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


def _run(command: list[str], env: Mapping[str, str], log: int, seconds: float) -> Ran:
    started = time.monotonic()
    process = subprocess.Popen(
        command,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        cwd="/",
        start_new_session=True,
        preexec_fn=partial(_limit, os.getpid()),
    )
    timed_out = False
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        timed_out, code = True, -signal.SIGKILL
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    os.lseek(log, max(0, os.fstat(log).st_size - OUTPUT_LIMIT), os.SEEK_SET)
    text = os.read(log, OUTPUT_LIMIT).decode(errors="replace")
    return Ran(code, text, timed_out, time.monotonic() - started)


def _limit(parent: int) -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # it ends with the thread that waits for it
    if os.getppid() != parent:
        os._exit(1)  # which was killed before it could be said
    for what, most in _LIMITS.items():
        _, hard = resource.getrlimit(what)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (most, hard if what == resource.RLIMIT_NOFILE else most))


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
