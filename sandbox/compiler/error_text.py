"""The message for a kernel that did not compile: which process died of which signal, then the compiler's own words."""

import os
import re
import signal

LIMIT = 65536  # characters of what the compiler printed
PTXAS_DIED = re.compile(r"`ptxas` failed with error code -(\d+)")  # as Triton says it


def describe(log: str, status: int, limit: float) -> str:
    """Return the compiler's words, behind the signal that ended it where one did.

    `status`: of the child that compiled, as `os.waitpid` gives it. `limit`: seconds after which a child is killed.
    """
    log = log[:LIMIT].strip()
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        reason = f"over {limit:.0f} s" if name == "SIGKILL" else "a crash of the compiler"
        return f"the compiler died of {name} ({reason})\n{log}".strip()
    if crashed := PTXAS_DIED.search(log):
        name = signal.Signals(int(crashed[1])).name
        problem = f"error: ptxas died of {name}: a fault of its own, which names no line"
        return f"{problem}. Write what is new another way\n{log}"
    return log
