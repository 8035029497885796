"""Boxed processes that need not import torch, triton and our own modules first: they are forked from one that has
(`forkserver_main.py`).

The box is bubblewrap's all the same: it sets up mounts and namespaces around a shell that waits, and the forked process
joins it there. When the shell ends, all in the box ends. Where joining is not allowed (a bubblewrap that is setuid
root), `Cold` says so, and `box.py` starts a process the long way.
"""

import atexit
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pgo_agent.sandbox.isolation import bubblewrap

PROCESS = Path(__file__).with_name("forkserver_main.py")
WAIT = (  # what holds a box: it says that all is set up, and ends with its input; short of memory it goes first
    "/bin/sh",
    "-c",
    "{ echo 1000 > /proc/self/oom_score_adj; } 2> /dev/null; echo; read line",
)
TRIES = 3  # to have a process that forks others, where somebody kills it
START_SECONDS = 120.0  # torch on a machine that does much else
_TRITON = ("triton", "triton.backends.nvidia.compiler")
_LAUNCHED = (*_TRITON, "triton.testing", "triton.experimental.gluon")  # Gluon: the first launch imports it
_SHARED = ("isolation.rlimits", "isolation.seccomp", "bundle.validate", "devices", "target")
_TRACER = (
    "autotune",
    "capture_ttgir",
    "compiler_stderr",
    "error_messages",
    "launches",
    "stand_in_backward",
    "user_calls",
)
_COMPILER = ("backend_stages", "nvdisasm", "nvidia_tools", "sass_mix", "static", "tools_found")


def _ours(*names: str, room: str = "") -> tuple[str, ...]:
    return tuple(f"pgo_agent.sandbox.{room}{n}" for n in names)


_COMPILED = (*_TRITON, *_ours(*_COMPILER, room="compiler."), *_ours("isolation.seccomp"))
_TRACED = (  # DTensor: torch imports it when a fake tensor is cast
    *("torch", "torch.distributed.tensor", "torch.fx.experimental.symbolic_shapes", *_LAUNCHED),
    *_ours(*_TRACER, room="tracer."),
    *_ours("tools_found", room="compiler."),
    *_ours(*_SHARED, "in_place", "ttgir.dataflow"),
)
_INTERPRETED = ("torch", *_LAUNCHED, "triton.runtime.interpreter", *_ours(*_SHARED, "interpreter.session"))
# What a module is sure to import, from which all else follows. Of ours nothing that changes torch when it is imported
# (`tracer/fake_gpu.py`): a judge is forked from the same process (`unboxed.py`).
LIBRARIES = {
    "pgo_agent.sandbox.tracer": _TRACED,
    "pgo_agent.sandbox.tracer.user_program": _TRACED,
    "pgo_agent.sandbox.tracer.guard_time": _TRACED,
    "pgo_agent.sandbox.tracer.problem": _TRACED,
    "pgo_agent.sandbox.interpreter": _INTERPRETED,
    "pgo_agent.sandbox.interpreter.as_shipped": _INTERPRETED,
    "pgo_agent.sandbox.compiler": _COMPILED,
}
# PyTorch's compiler, which nearly every package of kernels imports: one to three seconds of each process. A question
# mark: if it can be imported.
COMPILER = ("?torch._dynamo", "?torch._inductor.compile_fx", "?functorch.compile")
KILLED = 128 + signal.SIGKILL  # as bubblewrap reports a SIGKILL


class Cold(Exception):
    """No process can be forked into a box here; the text says why."""


@dataclass(frozen=True)
class _Kind:
    python: str
    module: str
    libraries: tuple[str, ...]
    env: tuple[tuple[str, str], ...]


class Entered:
    """A process in a box."""

    code = KILLED  # its exit status once it ended, as bubblewrap gives it

    def __init__(self, status: int) -> None:
        self._status = status  # an open file that says how it ended

    def wait(self, timeout: float) -> None:
        """Wait until it ends. Raises subprocess.TimeoutExpired, and Cold when it never began."""
        ready = select.poll()
        ready.register(self._status, select.POLLIN)
        if not ready.poll(1000 * max(0.0, timeout)):
            raise subprocess.TimeoutExpired("a boxed process", timeout)
        text = os.read(self._status, 1000).decode()
        if text.startswith("no: "):
            raise Cold(text[4:])
        if text:
            self.code = int(text) if int(text) >= 0 else 128 - int(text)


class Warm:
    """One process that forks others. Any number of threads may ask it, and processes that hold `ours`, too."""

    def __init__(self, ours: socket.socket, popen: "subprocess.Popen[bytes] | None") -> None:
        self.ours, self._popen = ours, popen  # None: another process began it

    @classmethod
    def begun(cls, kind: _Kind) -> "Warm":
        """Begin one, and do not wait for its imports."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            popen = subprocess.Popen(
                [kind.python, "-B", str(PROCESS), kind.module, str(bubblewrap.PACKAGE), *kind.libraries],
                env=dict(kind.env),
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        return cls(ours, popen)

    @property
    def ended(self) -> bool:
        """Whether it is gone, asked by its parent or by anybody else."""
        hung_up = select.poll()
        hung_up.register(self.ours, 0)
        return bool(hung_up.poll(0))

    @property
    def borrowed(self) -> bool:
        return self._popen is None

    @property
    def killed(self) -> bool:
        """Whether somebody killed it, and no error of its own ended it."""
        return self._popen is not None and self.ended and self._popen.wait() == -signal.SIGKILL

    def ready(self) -> None:
        """Wait until it has its libraries. Raises Cold when it cannot import them."""
        self.ours.settimeout(START_SECONDS)
        try:
            fine = self.ours.recv(16, socket.MSG_PEEK) == b"ready"  # and there it stays, for others that hold `ours`
        except OSError:
            fine = False
        if not fine:
            raise Cold("the libraries cannot be imported ahead")

    def ask(self, request: Mapping[str, Any], files: Sequence[int]) -> int:
        """Ask for a process with these open files; return an open file that will say how it ended.

        Raises OSError when this process is gone.
        """
        status, child_end = os.pipe()
        try:
            socket.send_fds(self.ours, [json.dumps(request).encode()], [child_end, *files])
        except OSError:
            os.close(status)
            raise
        finally:
            os.close(child_end)
        return status

    def end(self) -> None:
        self.ours.close()
        if self._popen is not None:
            self._popen.kill()
            self._popen.wait()


class _Servers:
    """The processes of this one: one of a kind, begun when it is first needed."""

    def __init__(self) -> None:
        self._owner, self._lock = os.getpid(), threading.Lock()
        self._locks: dict[_Kind, threading.Lock] = {}
        self._warm: dict[_Kind, Warm] = {}
        self.cold: dict[_Kind, str] = {}
        self.ahead: tuple[str, ...] = ()  # further libraries of what has torch

    def ask(self, kind: _Kind, request: Mapping[str, Any], files: Sequence[int], waits: bool) -> int:
        """Do what Warm.ask does, in a new process if somebody killed the last. Raises Cold.

        `waits`: until it has its libraries, or has none. Otherwise what it said it will do may never come.
        """
        lock = self._lock_of(kind)
        for _ in range(TRIES):
            with lock:
                if kind in self.cold:
                    raise Cold(self.cold[kind])
                warm = self._ready(kind) if waits else self._begun(kind)
            try:
                return warm.ask(request, files)
            except OSError:
                with lock:
                    if self._warm.get(kind) is warm:
                        self._warm.pop(kind).end()
        raise Cold("the process that forks others was killed again and again")

    def begin(self, kind: _Kind) -> Warm:
        """Begin the process of a kind ahead of need, unless it is there."""
        with self._lock_of(kind):
            if kind in self._warm and self._warm[kind].ended:
                self._warm.pop(kind).end()
            return self._begun(kind)

    def adopt(self, kind: _Kind, ours: socket.socket) -> None:
        """Use a process that another one of ours began and holds."""
        with self._lock_of(kind):
            self._warm.setdefault(kind, Warm(ours, None))

    def _lock_of(self, kind: _Kind) -> threading.Lock:
        with self._lock:
            return self._locks.setdefault(kind, threading.Lock())

    def _begun(self, kind: _Kind) -> Warm:
        if kind not in self._warm:
            self._warm[kind] = Warm.begun(kind)
        return self._warm[kind]

    def _ready(self, kind: _Kind, tries: int = TRIES) -> Warm:
        warm = self._begun(kind)
        try:
            warm.ready()
        except Cold as e:
            again = warm.borrowed or (warm.killed and tries > 1)  # of one that is borrowed, nobody knows how it ended
            self._warm.pop(kind).end()
            if again:
                return self._ready(kind, tries - 1)
            self.cold[kind] = str(e)
            raise
        return warm

    def end(self) -> None:
        if self._owner == os.getpid():  # and not a fork of it
            for warm in self._warm.values():
                warm.end()


def expect_compiler() -> None:
    """Have what is begun from now on import PyTorch's compiler ahead, too."""
    _servers().ahead = COMPILER


def begin(python: str, module: str, env: Mapping[str, str]) -> int:
    """Begin the process that boxed ones of a module are forked from, and do not wait for its imports.

    This process and forks of it share it, and so does one that inherits the open file that is returned: see `adopt`.
    """
    return _servers().begin(_kind(python, module, env)).ours.fileno()


def adopt(python: str, module: str, env: Mapping[str, str], inherited: int) -> None:
    """Fork boxed processes of a module from what another process began, by the open file that `begin` gave there."""
    _servers().adopt(_kind(python, module, env), socket.socket(fileno=inherited))


@contextlib.contextmanager
def entered(
    python: str, module: str, env: Mapping[str, str], box: int, log: int, words: Sequence[str]
) -> Iterator[Entered]:
    """Run Python with these words, and what that module imports, in the box of a process (pidfd).

    Raises Cold, now or in `wait`.
    """
    kind, servers = _kind(python, module, env), _servers()
    status = servers.ask(kind, {"words": list(words)}, (box, log), waits=True)
    try:
        yield Entered(status)
    except Cold as e:
        servers.cold[kind] = str(e)
        raise
    finally:
        os.close(status)


def ask(python: str, module: str, env: Mapping[str, str], request: Mapping[str, Any], files: Sequence[int]) -> int:
    """Ask for a process of our own that no box holds (`unboxed.py`), once the libraries are there; do not wait for it.

    Returns an open file that will tell of it, or that ends when nothing comes. Raises Cold.
    """
    return _servers().ask(_kind(python, module, env), request, files, waits=False)


def _kind(python: str, module: str, env: Mapping[str, str]) -> _Kind:
    libraries = LIBRARIES[module]
    first = next(name for name, same in LIBRARIES.items() if same == libraries)  # one process for all with the same
    libraries += _servers().ahead if "torch" in libraries else ()
    return _Kind(python, first, libraries, tuple(sorted({**env, "PWD": "/box"}.items())))  # PWD: bubblewrap's


@cache
def _servers() -> _Servers:
    servers = _Servers()
    atexit.register(servers.end)
    return servers
