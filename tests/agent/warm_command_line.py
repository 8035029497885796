"""`python -m tests.agent.warm_command_line`: `pgo-agent`, each time in a process forked from this one.

Most of what a short command costs is the import of libraries, its own and those of its boxed processes. This process
has them: it imports what commands import, and borrows what boxed processes of its parent's are forked from.
Then it waits on a socket (its standard input). A request names the program, the arguments, the folder and the
environment, and comes with three open files: output, errors, and where to tell the process's id and how it ended.

A command is a process of its own, with its own judge, record and boxes, and ends as any other does. It differs from one
that is begun anew in its command line in /proc, an import that a module forgot may have been made by another, and it
does not take its modules apart when it ends.
"""

import atexit
import ctypes
import importlib
import json
import os
import runpy
import signal
import socket
import sys
import threading
from typing import Any

from pgo_agent.sandbox.imports import heavy
from pgo_agent.sandbox.isolation import box, huge_pages, lending

IMPORTS = (
    "pgo_agent.agent.cli.records",
    "pgo_agent.agent.cli.evals",
    "pgo_agent.agent.cli.session.command",
    "pgo_agent.agent.commands.apply",
    "pgo_agent.agent.commands.check",
    "pgo_agent.agent.commands.doctor",
    "pgo_agent.agent.commands.init.capture",
    "pgo_agent.agent.commands.optimize",
    "pgo_agent.agent.commands.profile",
    "pgo_agent.agent.commands.proving.command",
    "pgo_agent.agent.commands.recordings",
    "pgo_agent.agent.moves.catalogue",
    "pgo_agent.agent.search.loop",
    "pgo_agent.agent.views.live.progress",
    "pgo_agent.agent.views.profile.output",
    "pgo_agent.agent.views.profile.page",
    "pgo_agent.agent.views.profile.perfetto",
    "pgo_agent.agent.views.report.write",
    "pgo_agent.agent.views.show",
    "pgo_agent.evals.gate.run",
    "networkx",
    "openai",
    "typer.rich_utils",
    "tests.agent.made_up",
    "tests.agent.many",
    "tests.sandbox.spool_worker",
)
_PDEATHSIG = 1


def main() -> None:
    before = dict(os.environ)
    with heavy():
        for name in IMPORTS:
            importlib.import_module(name)
    own = {k: v for k, v in os.environ.items() if before.get(k) != v}  # what imports set, as they do anywhere
    lending.borrow()
    box.problem_with("bubblewrap")  # tried once: each command asks
    huge_pages.move()
    assert threading.active_count() == 1, "a fork has one thread"
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the children here
    with socket.socket(fileno=0) as requests:
        while True:
            request, files, _, _ = socket.recv_fds(requests, 1 << 20, 3)
            if not request:
                return
            for module in lending.MODULES:
                box.Box("bubblewrap").prepare(module)  # unless it is there: a test may have killed it
            if not os.fork():
                break
            for fd in files:
                os.close(fd)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if _becomes_the_command(*files):
        _run_to_the_end(json.loads(request), own)


def _becomes_the_command(out: int, err: int, status: int) -> bool:
    """Whether this is the command; the other process waits for it, tells how it ended, and is gone."""
    parent = os.getpid()
    command = os.fork()
    if command:
        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        os.write(status, b"%d\n" % command)
        for fd in (out, err):
            os.close(fd)
        os.write(status, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(command, 0)[1]))
        os._exit(0)
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
    null = os.open(os.devnull, os.O_RDONLY)
    for fd, of in ((0, null), (1, out), (2, err)):
        os.dup2(of, fd)
    for fd in (null, out, err, status):
        os.close(fd)
    return True


def _run_to_the_end(request: dict[str, Any], own: dict[str, str]) -> None:
    """End as Python does, but for taking apart all that was imported: that takes longer than a short command."""
    try:
        _run(request, own)
        code = 0
    except SystemExit as e:
        if not isinstance(e.code, int | None):
            raise
        code = e.code or 0
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _run(request: dict[str, Any], own: dict[str, str]) -> None:
    os.chdir(request["cwd"])
    if any(os.environ.get(name) != request["env"].get(name) for name in ("PATH", "TMPDIR")):
        box.tried.cache_clear()  # it may not work there
    os.environ.clear()
    os.environ.update(own | request["env"])
    sys.path[0] = request["cwd"]
    sys.argv = ["pgo-agent", *request["args"]]
    if request["program"]:
        importlib.import_module(request["program"]).main()
        return
    runpy.run_module("pgo_agent.agent.cli.main", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
