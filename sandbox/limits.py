"""The limits of a boxed process, which it sets on itself before any foreign code runs."""

import contextlib
import os
import resource
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


def apply() -> None:
    """Sets them, as far as the machine's own allow."""
    for what, most in LIMITS.items():
        _, hard = resource.getrlimit(what)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (most, hard if what == resource.RLIMIT_NOFILE else most))
    with contextlib.suppress(OSError), Path("/proc/self/oom_score_adj").open("w") as file:
        file.write("1000")  # short of memory, the kernel ends it before anything of the user's
