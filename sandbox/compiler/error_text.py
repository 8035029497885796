"""What is said of a kernel that did not compile: the compiler's own words, and first who died of what."""

import os
import re
import signal

LIMIT = 65536  # characters of what the compiler printed
PTXAS_DIED = re.compile(r"`ptxas` failed with error code -(\d+)")  # as Triton says it


def told(log: str, status: int, limit: float) -> str:
    """`status`: of the child that compiled it, as `os.waitpid` gives it; `limit`: seconds, after which it is killed."""
    log = log[:LIMIT].strip()
    if os.WIFSIGNALED(status):
        how = signal.Signals(os.WTERMSIG(status)).name
        reason = f"over {limit:.0f} s" if how == "SIGKILL" else "a crash of the compiler"
        return f"the compiler died of {how} ({reason})\n{log}".strip()
    if crashed := PTXAS_DIED.search(log):
        how = signal.Signals(int(crashed[1])).name
        return (
            f"error: ptxas died of {how}: a fault of its own, which names no line. Write what is new another way\n{log}"
        )
    return log
