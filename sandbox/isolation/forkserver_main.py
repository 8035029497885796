"""`python forkserver_main.py MODULE PACKAGE LIBRARY...`: imports libraries, then becomes boxed processes, one by one.

Most of what a boxed process costs is the import of torch, of triton and of our own modules. This one has them. Ours lie
in the folder PACKAGE, and are imported as if they lay where a box has them: a child finds the same files there. This
process waits on a socket (its standard input), and forks a child for each request. A request comes with three open
files: where to tell the end, a process of a box that bubblewrap has set up, and the log. The child joins that box's
namespaces (setns: its mounts, processes, network, IPC, host name and users are bubblewrap's), gives up every privilege,
and runs what Python's arguments name. A request with an environment is for a process of our own that no box holds: see
`_beside`.

No untrusted code runs in this process. Nothing comes back from a child. Every child is forked from the same state.
`forkserver.py` is the other end.
"""

import contextlib
import ctypes
import errno
import fcntl
import gc
import importlib
import itertools
import json
import os
import runpy
import select
import signal
import socket
import sys
import traceback
import types
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import Any, NoReturn

NOBODY = 65534
BOXED = "/pgo/pgo_agent/sandbox"  # where a box has our package
FILES = 8  # of one request, at most
MANY = 8  # requests, after which more are expected
_NEW = {  # CLONE_NEW* of a box, and their names in /proc
    "mounts": (0x00020000, "mnt"),
    "cgroup": (0x02000000, "cgroup"),
    "host name": (0x04000000, "uts"),
    "IPC": (0x08000000, "ipc"),
    "processes": (0x20000000, "pid"),
    "network": (0x40000000, "net"),
}
_NEW_USER = 0x10000000  # where no root starts it
_PDEATHSIG, _DUMPABLE, _NAME, _CAPBSET_DROP, _NO_NEW_PRIVS, _AMBIENT, _AMBIENT_CLEAR = 1, 4, 15, 24, 38, 47, 4
_CAPSET, _CAPABILITY_VERSION = {"x86_64": 126, "aarch64": 91}, 0x20080522  # number of the system call; _VERSION_3
_libc = ctypes.CDLL(None, use_errno=True)


def main(package: str, libraries: list[str]) -> None:
    gc.disable()
    sys.meta_path.insert(0, finder := _Ours(package))
    for name in libraries:
        with contextlib.suppress(Exception) if name.startswith("?") else contextlib.nullcontext():
            importlib.import_module(name.removeprefix("?"))
    from pgo_agent.sandbox.isolation import huge_pages

    sys.meta_path.remove(finder)
    gc.freeze()  # what is shared with the children stays so
    gc.enable()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the children here
    with socket.socket(fileno=0) as requests:
        requests.send(b"ready")
        for number in itertools.count(1):
            if not _serve(requests):
                return
            if number == MANY:
                huge_pages.move()


def _serve(requests: socket.socket) -> bool:
    """Fork a child for the next request; say whether there was one."""
    text, files, _, _ = socket.recv_fds(requests, 1 << 20, FILES)
    if text and not os.fork():
        request = json.loads(text)
        _beside(request, *files) if "env" in request else _child(request, *files)
    for fd in files:
        os.close(fd)
    return bool(text)


class _Ours(MetaPathFinder):
    """Finds our package where it lies here, and has its modules say that they lie where a box has them."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name == "pgo_agent":
            spec = ModuleSpec(name, None, is_package=True)
            spec.submodule_search_locations = [str(Path(BOXED).parent)]
            return spec
        if not name.startswith("pgo_agent.sandbox"):
            return None
        file = Path(self._package, *name.split(".")[2:])
        is_package = file.is_dir()
        file = file / "__init__.py" if is_package else file.with_suffix(".py")
        inside = Path(BOXED, file.relative_to(self._package))
        return spec_from_file_location(
            name,
            inside,
            loader=_Loader(name, str(inside), file),
            submodule_search_locations=[str(inside.parent)] if is_package else None,
        )


class _Loader(SourceFileLoader):
    """Loads a file as if it lay elsewhere: its code says so in tracebacks, too."""

    def __init__(self, name: str, inside: str, outside: Path) -> None:
        super().__init__(name, inside)
        self._outside = SourceFileLoader(name, str(outside))

    def get_code(self, fullname: str) -> types.CodeType | None:
        code = self._outside.get_code(fullname)
        return code and _placed(code, self.path)


def _placed(code: types.CodeType, file: str) -> types.CodeType:
    inner = tuple(_placed(c, file) if isinstance(c, types.CodeType) else c for c in code.co_consts)
    return code.replace(co_filename=file, co_consts=inner)


def _child(request: dict[str, Any], status: int, box: int, log: int) -> NoReturn:
    """Stand between this process and the one in the box: only a child of it is in the box's process namespace."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        ours = _namespaces()
        _ok(_libc.setns(box, sum(n for n, _ in _NEW.values()) | (_NEW_USER if os.geteuid() else 0)))
        boxed = os.fork()
        if not boxed:
            os.close(status)
            _run(request, log, ours)
        os.write(status, b"%d" % os.waitstatus_to_exitcode(os.waitpid(boxed, 0)[1]))
    except OSError as e:
        with contextlib.suppress(OSError):
            os.write(status, b"" if e.errno == errno.ESRCH else f"no: {e}".encode())  # a box that is gone was killed
    finally:
        os._exit(0)


def _beside(request: dict[str, Any], status: int, *files: int) -> NoReturn:
    """Lead the session of a process of ours: tell of it and of its end, and end it when nobody wants to hear that.

    The process starts only after its number was written to `status`. Until it is ended neither number can become
    another process's.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    waits, told = os.pipe()
    process = os.fork()
    if not process:
        os.close(status)
        os.close(told)
        if os.read(waits, 1):
            _run_ours(request, *files)
        os._exit(1)
    for fd in (0, *files):
        os.close(fd)
    with contextlib.suppress(OSError):
        os.write(status, b"%d %d\n" % (os.getpid(), process))
        os.write(told, b"1")
        events = select.poll()
        events.register(status, 0)
        events.register(ended := os.pidfd_open(process), select.POLLIN)
        if ended in dict(events.poll()) and (how := os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)):
            os.write(status, b"%d\n" % (how.si_status if how.si_code == os.CLD_EXITED else -how.si_status))
        events.unregister(ended)
        events.poll()
    os.killpg(0, signal.SIGKILL)
    os._exit(0)


def _run_ours(request: dict[str, Any], *files: int) -> NoReturn:
    """Be as a process that is begun anew with this environment and these files is: input, output, log, and others."""
    code = 1
    try:
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 1 << 8) for fd in files]
        for number, fd in enumerate(high):
            os.dup2(fd, number)
        os.closerange(len(high), os.sysconf("SC_OPEN_MAX"))
        old = os.environ["PYTHONPATH"].split(os.pathsep)
        os.environ.clear()
        os.environ.update(request["env"])
        for name in [n for n in sys.modules if n.partition(".")[0] == "pgo_agent"]:
            del sys.modules[name]  # no box has a folder for it here
        sys.path[: len(old)] = os.environ["PYTHONPATH"].split(os.pathsep)
        os.chdir(request["cwd"])
        _libc.prctl(_NAME, request["words"][1].rpartition(".")[2].encode())
        code = _as_python(request["words"])
    except BaseException:
        traceback.print_exc()
    finally:
        _leave(code)


def _namespaces() -> set[Path]:
    """Those that every box has of its own; control groups it has where the machine lets it."""
    return {Path(f"/proc/self/ns/{name}").readlink() for _, name in _NEW.values() if name != "cgroup"}


def _run(request: dict[str, Any], log: int, outside: set[Path]) -> NoReturn:
    code = 1
    try:
        _settle(log)
        if _namespaces() & outside:
            raise RuntimeError("this is no box")
        os.chdir("/box")
        _give_up()
        code = _as_python(request["words"])
    except BaseException:
        traceback.print_exc()
    finally:
        _leave(code)


def _leave(code: int) -> NoReturn:
    with contextlib.suppress(BaseException):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code & 0xFF)


def _settle(log: int) -> None:
    """Nothing of its parents stays open, and what it prints goes to the log."""
    os.setsid()
    null = os.open("/dev/null", os.O_RDWR)
    for fd, of in ((0, null), (1, log), (2, log)):
        os.dup2(of, fd)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))


def _give_up() -> None:
    """Limits, user, capabilities, system calls: as bubblewrap, setpriv and `box.py` leave a process that they start."""
    importlib.invalidate_caches()  # the box's folder for our package is not there outside of it
    from pgo_agent.sandbox.isolation import rlimits, seccomp

    rlimits.apply()
    _libc.prctl(_AMBIENT, _AMBIENT_CLEAR, 0, 0, 0)
    number = 0
    while _libc.prctl(_CAPBSET_DROP, number, 0, 0, 0) == 0:
        number += 1
    if not os.geteuid():
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    none = (ctypes.c_uint32 * 6)()
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    _ok(_libc.syscall(_CAPSET[os.uname().machine], header, none))
    _ok(_libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0))
    _ok(_libc.prctl(_DUMPABLE, 1, 0, 0, 0))  # as after an exec: /proc/self is its own
    _ok(_libc.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0))  # another user's would be forgotten
    seccomp.install(attributes=False)


def _as_python(words: list[str]) -> int:
    """Run `-m MODULE` or `-c CODE` with their arguments, in a fresh `__main__`; return the exit status."""
    try:
        _run_words(*words)
    except SystemExit as e:
        if e.code is not None and not isinstance(e.code, int):
            print(e.code, file=sys.stderr)
        return e.code if isinstance(e.code, int) else int(e.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _run_words(flag: str, program: str, *arguments: str) -> None:
    sys.argv = [flag, *arguments]
    if flag == "-m":
        runpy.run_module(program, run_name="__main__", alter_sys=True)
        return
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    exec(compile(program, "<string>", "exec"), module.__dict__)


def _ok(result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


if __name__ == "__main__":
    main(sys.argv[2], sys.argv[3:])  # the module's name is for those who look at the machine's processes
