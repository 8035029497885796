"""The limits of a boxed process, which it sets on itself before any untrusted code runs.

Others go first: compilers take every core that there is, and a judge that waits for one holds a GPU meanwhile.
"""

import contextlib
import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

LIMITS = {
    resource.RLIMIT_CORE: 0,
    resource.RLIMIT_FSIZE: 1 << 30,
    resource.RLIMIT_NPROC: 4096,
    resource.RLIMIT_NOFILE: 4096,
    resource.RLIMIT_AS: 48 << 30,
    resource.RLIMIT_DATA: max(4 << 30, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2),
    resource.RLIMIT_CPU: 1800,  # ends even a process that nobody waits for any more
}
NICE = 5  # of the scheduler's 0 to 19
_NAMES = ("core", "fsize", "nproc", "nofile", "as", "data", "cpu")  # of LIMITS, for prlimit


def apply() -> None:
    """Set them, as far as the machine's own allow."""
    for limit, values in _allowed():
        resource.setrlimit(limit, values)
    os.setpriority(os.PRIO_PROCESS, 0, max(NICE, os.getpriority(os.PRIO_PROCESS, 0)))
    _write("autogroup", str(NICE))  # where the kernel schedules sessions, and processes within them
    _write("oom_score_adj", "1000")  # short of memory, the kernel ends it before anything of the user's


def _allowed() -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield the soft and the hard value of each limit."""
    for limit, most in LIMITS.items():
        _, hard = resource.getrlimit(limit)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        yield limit, (most, hard if limit == resource.RLIMIT_NOFILE else most)


def words() -> list[str]:
    """Return a command line that sets them on what follows; none where the programs for that are not there."""
    if not all(map(shutil.which, ("nice", "prlimit"))):
        return []
    values = [soft if soft == hard else f"{soft}:" for _, (soft, hard) in _allowed()]
    more = max(0, NICE - os.getpriority(os.PRIO_PROCESS, 0))
    return ["nice", "-n", str(more), "prlimit", *(f"--{n}={v}" for n, v in zip(_NAMES, values, strict=True)), "--"]


def _write(name: str, text: str) -> None:
    with contextlib.suppress(OSError), Path(f"/proc/self/{name}").open("w") as file:
        file.write(text)
