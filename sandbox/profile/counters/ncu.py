"""Nsight Compute's command line: where it is, which version, how it profiles one launch, what its errors say.

Relies on `ncu --version`, on options and sections that have been there since 2022, and on the words of its errors. It
knows nothing of reports (`ncu_report.py`), nor of what is launched (`launcher.py`).
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

OLDEST = (2022, 3)  # the first that knows compute capability 9.0; it came with CUDA 11.8
ASKED_SECONDS = 60.0  # for `ncu --version`, which unpacks itself when it is first started
PLACES = (
    "/usr/local/cuda/bin/ncu",
    "/usr/local/cuda-*/bin/ncu",
    "/opt/nvidia/nsight-compute/*/ncu",
    "/usr/local/NVIDIA-Nsight-Compute*/ncu",
)
READERS = ("/opt/nvidia/nsight-compute/*/extras/python", "/usr/local/cuda*/nsight-compute-*/extras/python")
SECTIONS = (
    "SpeedOfLight",
    "ComputeWorkloadAnalysis",  # the tensor pipe
    "MemoryWorkloadAnalysis",
    "MemoryWorkloadAnalysis_Tables",  # bank conflicts
    "Occupancy",  # active warps
    "SourceCounters",  # per instruction: executed, samples by reason
)
PERMISSION = (
    "this user may not read the GPU's counters (ERR_NVGPUCTRPERM): be root, or have the driver loaded with"
    " NVreg_RestrictProfilingToAdminUsers=0; see https://developer.nvidia.com/ERR_NVGPUCTRPERM"
)
POLL = 0.02  # seconds between looks at a program
PROBLEM = "problem"  # the launcher's file beside the request: why it launched nothing
_VERSION = re.compile(r"^Version (\d+)\.(\d+)\.(\d+)", re.M)
_ERROR = re.compile(r"==ERROR==[ \t]*(\S.*)")
_CONSEQUENCE = "The application returned an error code"  # of an error that was printed before


class Absent(Exception):
    """Why there are no counters, in one line."""


@dataclass(frozen=True)
class Tool:
    path: str
    version: tuple[int, ...]  # 2025, 3, 1

    @property
    def name(self) -> str:
        return "ncu " + ".".join(map(str, self.version))

    def command(self, report: Path, launcher: Sequence[str]) -> list[str]:
        """Profile what `launcher` launches between the start and the stop of CUDA's profiler: NAME.ncu-rep."""
        sections = [word for s in SECTIONS for word in ("--section", s)]
        output = ["--force-overwrite", "--export", str(report.with_suffix("")), "--target-processes", "all"]
        launch = ["--profile-from-start", "off", "--launch-count", "1", "--replay-mode", "kernel"]
        steady = ["--cache-control", "all", "--clock-control", "none"]
        return [self.path, *output, *launch, *steady, *sections, *launcher]


def find(path: str | None = None, places: Sequence[str] = PLACES) -> Tool:
    """Return the ncu on `path` (PATH), or else the newest of these places. Raises Absent where none will do."""
    refused = []
    for candidate in _candidates(path, places):
        try:
            tool = Tool(candidate, version(candidate))
        except Absent as e:
            refused.append(str(e))
            continue
        if tool.version >= OLDEST:
            return tool
        refused.append(f"{tool.name} ({candidate}) is too old: {OLDEST[0]}.{OLDEST[1]} or later is needed")
    raise Absent(refused[0] if refused else "Nsight Compute is not installed: no ncu on PATH, nor beside CUDA")


def _candidates(path: str | None, places: Sequence[str]) -> Iterator[str]:
    on_path = shutil.which("ncu", path=path)
    if on_path:
        yield on_path
    yield from (p for place in places for p in newest_first(place) if p != on_path and os.access(p, os.X_OK))


def newest_first(pattern: str) -> list[str]:
    """Return what matches, by the numbers in it: 2025.3.1 before 2025.3.0 before 2024.1."""
    paths = map(str, Path("/").glob(pattern.lstrip("/")))
    return sorted(paths, key=lambda p: [int(n) for n in re.findall(r"\d+", p)], reverse=True)


def version(path: str) -> tuple[int, ...]:
    """Return what an ncu says of itself. Raises Absent where it says nothing."""
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, errors="replace", timeout=ASKED_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        raise Absent(f"{path} cannot be run: {e}") from None
    match = _VERSION.search(done.stdout)
    if not match:
        raise Absent(f"{path} does not tell its version: {last_line(done.stdout + done.stderr) or 'it prints nothing'}")
    return tuple(int(n) for n in match.groups())


def own_reader(tool: Tool) -> Path | None:
    """Return the folder of the module `ncu_report` that came with an ncu, or with the newest one that is installed."""
    beside = str(Path(tool.path).resolve().parent / "extras" / "python")
    folders = [beside, *(p for pattern in READERS for p in newest_first(pattern))]
    return next((Path(f) for f in folders if (Path(f) / "ncu_report.py").is_file()), None)


class Program:
    """Runs in a session of its own, which ends with it. `log`: the file that gets both its streams."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        self._log = log
        with log.open("wb") as out:
            self._popen = subprocess.Popen(
                command, env=dict(env), stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )

    def ended(self) -> bool:
        return self._popen.poll() is not None

    def within(self, seconds: float, done: Callable[[], bool]) -> bool:
        """Return whether it ended within these seconds, or was `done`."""
        until = time.monotonic() + seconds
        while not (finished := self.ended() or done()) and time.monotonic() < until:
            time.sleep(POLL)
        return finished

    @property
    def output(self) -> str:
        return self._log.read_text(errors="replace")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait()


def refusal(output: str) -> str:
    """Return why ncu itself gave nothing, by its own errors; empty where it printed none."""
    errors = [e.strip() for e in _ERROR.findall(output) if not e.startswith(_CONSEQUENCE)]
    if any("ERR_NVGPUCTRPERM" in e for e in errors):
        return PERMISSION
    return f"ncu: {errors[0]}"[:300] if errors else ""


def last_line(text: str) -> str:
    """Return the last that was printed by anything but ncu's own reports of progress."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("==")]
    return lines[-1][:300] if lines else ""
