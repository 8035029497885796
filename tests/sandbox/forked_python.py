"""Runs Python code that uses torch and Triton, in a process of its own that is forked from what boxed ones are.

For tests whose code changes the process that it runs in. The process differs from `python -c` in who imported its
libraries; nothing of ours is imported in it, and no box holds it.
"""

import subprocess
import tempfile

from pgo_agent.sandbox.isolation import forkserver, unboxed
from pgo_agent.sandbox.isolation.box import INTERPRETER
from pgo_agent.sandbox.judge import worker_process


def ran(code: str, *arguments: object, interpreted: bool = False) -> "subprocess.CompletedProcess[str]":
    """Run code to its end. `interpreted`: its kernels run in Triton's interpreter."""
    env = worker_process.environment(None) | ({"TRITON_INTERPRET": "1"} if interpreted else {})
    words = ["-c", code, *map(str, arguments)]
    with tempfile.TemporaryFile() as log:
        process = unboxed.Forked(words, env, log.fileno(), [], INTERPRETER if interpreted else unboxed.MODULE)
        try:
            assert process.came(forkserver.START_SECONDS), "it cannot be forked"
            printed = process.stdout.read().decode()
            status = process.wait()
        finally:
            process.end()
        log.seek(0)
        return subprocess.CompletedProcess(words, status, printed, log.read().decode())
