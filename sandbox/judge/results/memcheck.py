"""NVIDIA's compute-sanitizer around a judge process: how it is started, and what its log says.

Relies on the program that comes with the CUDA toolkit. It sees every access of a kernel outside of an allocation, reads
as well, which guard zones cannot.
"""

import re
import shutil
from pathlib import Path

from pgo_agent.sandbox.errors import UsageFault

PLACES = ("/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer", "/opt/cuda/bin")
PADDING = "65536"  # bytes behind every allocation, or the next tensor begins where one ends
_INVALID = re.compile(r"=+ (Invalid .+)\n=+ +at (.+)")


def command() -> list[str]:
    """Raises UsageFault where the program is not installed."""
    found = shutil.which("compute-sanitizer") or next(
        filter(None, (shutil.which("compute-sanitizer", path=p) for p in PLACES)), None
    )
    if found is None:
        raise UsageFault("compute-sanitizer is not installed here", "install the CUDA toolkit, or leave --memcheck out")
    return [found, "--tool", "memcheck", "--target-processes", "application-only", "--padding", PADDING]


def problem(log: Path) -> str:
    """The first invalid access of a log in one line; empty when there is none."""
    text = log.read_text(errors="replace") if log.is_file() else ""
    found = _INVALID.search(text)
    return f"{found[1]} at {found[2]}" if found else ""
