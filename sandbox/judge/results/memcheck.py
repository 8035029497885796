"""NVIDIA's compute-sanitizer around a judge process: its command, and its log.

Relies on the program of the CUDA toolkit. It sees every access of a kernel outside of an allocation, also reads, which
guard zones cannot see.
"""

import re
import shutil
from pathlib import Path

from pgo_agent.sandbox.errors import UsageFault

PLACES = ("/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer", "/opt/cuda/bin")
PADDING = "65536"  # bytes behind every allocation, or the next tensor begins where one ends
_INVALID = re.compile(r"=+ (Invalid .+)\n=+ +at (.+)")


def command() -> list[str]:
    """Return the command that runs a process under it. Raises UsageFault where it is not installed."""
    program = shutil.which("compute-sanitizer") or next(
        filter(None, (shutil.which("compute-sanitizer", path=p) for p in PLACES)), None
    )
    if program is None:
        raise UsageFault("compute-sanitizer is not installed here", "install the CUDA toolkit, or leave --memcheck out")
    return [program, "--tool", "memcheck", "--target-processes", "application-only", "--padding", PADDING]


def problem(log: Path) -> str:
    """Return the first invalid access of a log in one line; empty when there is none."""
    text = log.read_text(errors="replace") if log.is_file() else ""
    match = _INVALID.search(text)
    return f"{match[1]} at {match[2]}" if match else ""
