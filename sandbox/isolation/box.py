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
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from pgo_agent.sandbox.bundle.store import room
from pgo_agent.sandbox.errors import EnvironmentFault, Killed, UsageFault
from pgo_agent.sandbox.isolation import bubblewrap, forkserver, process
from pgo_agent.sandbox.isolation.process import Ran
from pgo_agent.sandbox.packages_folder import imports_packages
from pgo_agent.sandbox.temporary_folders import temporary_folder

KINDS = ("bubblewrap", "landlock", "none")
INTERPRETER = "pgo_agent.sandbox.interpreter"
TRACER = "pgo_agent.sandbox.tracer"
FORKED = (INTERPRETER, TRACER)  # what the judge without a GPU runs in boxes
AS_SHIPPED = f"{INTERPRETER}.as_shipped"
VARIABLES = {
    m: {"TRITON_INTERPRET": "1"} for m in (INTERPRETER, AS_SHIPPED)
}  # of the environment of a module, which triton's import reads
ATTEMPTS = 3  # for a process that was killed from outside
__all__ = ["AS_SHIPPED", "ATTEMPTS", "INTERPRETER", "KINDS", "Box", "Ran", "choose", "killed", "problem_with", "tried"]


@dataclass(frozen=True)
class Box:
    """A way of isolating a process. `python` is the interpreter that runs inside."""

    kind: str
    python: str = sys.executable
    forks: bool = field(default=True, kw_only=True)  # from a process that has what it imports, where that works

    @property
    def isolates(self) -> bool:
        return self.kind != "none"

    def admit(self, untrusted: bool) -> None:
        """Raise EnvironmentFault when code that is not the user's own would run without isolation."""
        if untrusted and not self.isolates:
            raise EnvironmentFault(
                "no sandbox works on this machine, and this candidate is not your own code",
                "install bubblewrap (see `pgo-agent doctor`), or run where one works",
            )

    def run(
        self, module: str, folder: Path, seconds: float, args: Sequence[str] = (), env: Mapping[str, str] | None = None
    ) -> Ran:
        """Run `python -m MODULE FOLDER ARGS` with FOLDER as its only writable place.

        Raises EnvironmentFault when the disk filled up meanwhile, and what the process wrote is not why.
        """
        folder = folder.resolve()
        _hand_over(folder)
        inside = Path("/box") if self.kind == "bubblewrap" else folder
        words = [*self._program(module), str(inside), *args]
        extra = VARIABLES.get(module, {}) | dict(env or {})
        with process.place(self.kind, folder, self._environment(inside, extra), seconds) as at:
            if self.kind == "bubblewrap" and self.forks and module in forkserver.LIBRARIES:
                with contextlib.suppress(forkserver.Cold):
                    return process.forked(self.python, module, words, at)
            ends_by = signal.SIGTERM if self.kind == "landlock" else signal.SIGKILL
            return process.anew(self._wrapped([self.python, "-B", *words], folder, *at.filters), at, ends_by)

    def prepare(self, module: str) -> int | None:
        """Begin what processes of a module are forked from, where this box forks, and do not wait for it.

        `run` then need not wait for an import of torch: here, in forks of this process, and in another process that
        inherits the open file that is returned, and calls `borrow`.
        """
        if self.kind == "bubblewrap" and self.forks and module in forkserver.LIBRARIES:
            return forkserver.begin(self.python, module, self._environment(Path("/box"), VARIABLES.get(module, {})))
        return None

    def borrow(self, module: str, inherited: int) -> None:
        """Fork processes of a module from what another process prepared, which gave us that open file."""
        forkserver.adopt(self.python, module, self._environment(Path("/box"), VARIABLES.get(module, {})), inherited)

    def ask(self, module: str, request: Mapping[str, Any], files: Sequence[int]) -> int:
        """Ask what processes of a module are forked from for one that no box holds: see forkserver.ask."""
        return forkserver.ask(
            self.python, module, self._environment(Path("/box"), VARIABLES.get(module, {})), request, files
        )

    def _program(self, module: str) -> list[str]:
        """Return Python's arguments that say what to run."""
        return ["-m", module]

    def _wrapped(self, command: list[str], folder: Path, *filters: int) -> list[str]:
        if self.kind == "bubblewrap":
            return [*bubblewrap.bubblewrap(self.python, folder, *filters), *command]
        if self.kind == "landlock":
            readable = [
                str(p) for p in (*bubblewrap.readable(self.python), bubblewrap.PACKAGE, bubblewrap.import_root())
            ]
            return [self.python, "-m", "pgo_agent.sandbox.isolation.landlock", str(folder), *readable, "--", *command]
        return command

    def _environment(self, inside: Path, extra: Mapping[str, str]) -> dict[str, str]:
        bubbled = self.kind == "bubblewrap"
        home = "/tmp" if bubbled else str(inside / "tmp")
        ours = "/pgo" if bubbled else str(bubblewrap.import_root())
        return {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": home,
            "TMPDIR": home,
            "LANG": "C.UTF-8",
            "TRITON_CACHE_DIR": f"{home}/triton",
            "CUDA_VISIBLE_DEVICES": "",
            "TRITON_DEFAULT_FP_FUSION": "1",
            "PYTHONPATH": os.pathsep.join([ours, *map(str, bubblewrap.extra_paths())]),
            "PYTHONHASHSEED": "0",
            "PYTHONSAFEPATH": "1",
            "PYTHONNOUSERSITE": "1",
            "USER": "nobody",
            "OMP_WAIT_POLICY": "PASSIVE",  # threads that spin between two operators of torch take a core from others
            "TORCHINDUCTOR_CACHE_DIR": f"{home}/inductor",
            **extra,
        }


def choose(wanted: str = "auto", python: str = sys.executable) -> Box:
    """Return the best box that works here, or the one that is asked for. Raises when that one does not work."""
    if wanted not in ("auto", *KINDS):
        raise UsageFault(f"unknown sandbox '{wanted}'", f"choose one of: auto, {', '.join(KINDS)}")
    if wanted != "auto":
        problem = problem_with(wanted, python)
        if problem:
            raise EnvironmentFault(f"the sandbox '{wanted}' does not work here: {problem}", "see `pgo-agent doctor`")
        return Box(wanted, python)
    return Box(next(k for k in KINDS if not problem_with(k, python)), python)


def expect(*texts: str) -> None:
    """Prepare for programs that are to run in boxes: what they import takes longest. Call it before the first runs."""
    if imports_packages(*texts):
        forkserver.expect_compiler()


def problem_with(kind: str, python: str = sys.executable) -> str:
    """Return why this kind of box does not work here; empty when it does. It is tried, not guessed."""
    return tried(kind, python)


@cache
def tried(kind: str, python: str) -> str:
    """Try a kind of box, once in this process and its forks."""
    if kind == "none":
        return ""
    if kind == "bubblewrap" and not shutil.which("bwrap"):
        return "bubblewrap is not installed (Debian, Ubuntu: apt-get install bubblewrap)"
    for _ in range(ATTEMPTS):
        with temporary_folder("probe") as folder:
            ran = Box(kind, python).run("pgo_agent.sandbox.isolation.probe", folder, 30)
            fine = ran.code == 0 and (folder / "out" / "probe").is_file()
        if fine:
            return ""
        room(folder.parent)
        if not ran.killed:  # that would say nothing about the box
            return ran.output.strip()[-300:] or f"exit status {ran.code}"
    raise killed("probing")


def killed(what: str) -> Killed:
    """Return the fault of a process that was killed ATTEMPTS times in a row."""
    hint = "free some memory if it ran out (`dmesg` says so), then `pgo-agent resume`"
    return Killed(f"the {what} process was killed {ATTEMPTS} times in a row (SIGKILL)", hint)


def _hand_over(folder: Path) -> None:
    """Make the folder readable, and out/ and tmp/ writable, for the user inside; fix the times of its files."""
    for name in ("out", "tmp"):
        (folder / name).mkdir(exist_ok=True)
        if os.geteuid() == 0:
            os.chown(folder / name, bubblewrap.NOBODY, bubblewrap.NOBODY)
    folder.chmod(0o755)
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            os.utime(path, (0, 0))  # some compilers write a file's time into what they make
            path.chmod(0o644)
