"""Triton's ptxas, nvdisasm and cuobjdump in boxed processes: one that somebody kills must not pass for a bad kernel.

The process that ran the tool ends as killed, too, and `trace_and_compile.py` starts it again as a whole. Relies on
Triton's names for its tools (3.6 to 3.9). A tool that fails by itself is left alone.
"""

import os
import signal
import subprocess
from collections.abc import Callable
from typing import Any

TRIES = 3
SECONDS = 60.0  # for a tool that reads one cubin


def find(arch: int, *others: str) -> None:
    """Make Triton look for ptxas and `others` now, and keep the result: a tool that is killed while it looks counts as
    missing."""
    from triton import knobs
    from triton.backends.nvidia import compiler

    for _ in range(TRIES):
        try:
            compiler.get_ptxas_version(arch)
            for name in others:
                getattr(knobs.nvidia, name)
            return
        except (RuntimeError, subprocess.CalledProcessError):
            knobs.NvidiaTool.from_path.cache_clear()


def output(command: list[str]) -> str:
    """Return what a tool prints on standard output, whether it fails or not."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    if done.returncode == -signal.SIGKILL:
        _end()
    return done.stdout


def guarded(stage: Callable[..., Any]) -> Callable[..., Any]:
    """Return a stage of Triton's compiler that runs a tool."""

    def run(*args: Any) -> Any:
        try:
            return stage(*args)
        except Exception as e:
            if _was_killed(e):
                _end()
            raise

    return run


def _was_killed(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, subprocess.CalledProcessError) and error.returncode == -signal.SIGKILL:
            return True
        error = error.__cause__ or error.__context__
    return False


def _end() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
