"""Makes the targets of the field suite with `pgo-agent init`, as a user would, and checks each without a GPU.

Every kernel gets a process of its own for each command, in a folder of its own that holds its program and nothing else.
Relies on `suite.py` for what there is. It measures nothing.
"""

import json
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from pgo_agent.agent.commands.init import outcome
from pgo_agent.agent.exit_codes import Exit
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.evals.field import merge
from pgo_agent.evals.field.suite import HINT, PROGRAMS, RUNNERS, FieldKernel
from pgo_agent.sandbox.isolation import lending
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.temporary_folders import temporary_folder

SECONDS = 900.0  # of one command


@dataclass(frozen=True)
class FieldTarget:
    """How far a kernel came without a GPU."""

    kernel: str
    package: str
    version: str  # empty: not installed
    written: bool  # `init` wrote a target
    by_hand: int  # lines that a person had to write; of a target that still lacks some, those too
    ready: bool  # nothing is left to write
    seconds: float  # that `init` took
    verdict: str  # of the target as its own candidate: right, built, or an error; empty: not checked
    said: str  # what the command said in the end
    check_seconds: float

    def as_json(self) -> JsonObject:
        return {"what": "target", **asdict(self)}


def make(kernel: FieldKernel, folder: Path, check: bool, settings: RunSettings) -> FieldTarget:
    """Write the target of a kernel into `folder`; with `check`, put it through the gate as its own candidate."""
    file = folder / f"{kernel.name}.py"
    if not kernel.version:
        return FieldTarget(kernel.name, kernel.package, "", False, 0, False, 0.0, "", f"not installed: {HINT}", 0.0)
    with temporary_folder("field") as place:
        program = shutil.copy(PROGRAMS / kernel.program, place)
        launcher = ["--launcher", kernel.launcher] if kernel.launcher else []
        options = ["-o", str(file), "--force", *launcher, *_sandbox(settings)]
        words = ["init", kernel.file, *options, "--", *RUNNERS[kernel.run], Path(program).name]
        file.unlink(missing_ok=True)
        began = time.monotonic()
        done = run_command(words, place)
        seconds = time.monotonic() - began
        if not file.exists():
            return _row(kernel, file, seconds, last_words(done))
        if kernel.by_hand:
            file.write_text(merge.merged(file.read_text(), kernel.by_hand.read_text()))
        row = _row(kernel, file, seconds, last_words(done))
        return _checked(row, file, place, settings) if check and row.ready else row


def _row(kernel: FieldKernel, file: Path, seconds: float, said: str) -> FieldTarget:
    own = merge.lines(kernel.by_hand.read_text()) if kernel.by_hand else 0
    written = file.exists()
    left = len(outcome.marks(file)[0]) if written else 0
    return FieldTarget(
        kernel.name,
        kernel.package,
        kernel.version,
        written,
        own + left,
        written and not left,
        round(seconds, 1),
        "",
        said if not written or left else "",
        0.0,
    )


def _checked(row: FieldTarget, file: Path, place: Path, settings: RunSettings) -> FieldTarget:
    began = time.monotonic()
    done = run_command(
        [
            "init",
            "--check",
            str(file),
            "--judge",
            "cpu",
            "--json",
            "--store",
            str(place / "store"),
            *_sandbox(settings),
        ],
        place,
    )
    verdict, said = _judged(done)
    took = round(time.monotonic() - began, 1)
    return FieldTarget(**asdict(row) | {"verdict": verdict, "said": said, "check_seconds": took})


def _sandbox(settings: RunSettings) -> list[str]:
    return ["--sandbox", settings.sandbox]


def run_command(arguments: list[str], place: Path) -> subprocess.CompletedProcess[str]:
    command, lent = [sys.executable, "-m", "pgo_agent.agent.cli.main", *arguments], lending.lend()
    try:
        return subprocess.run(
            command,
            cwd=place,
            env=lent.env,
            pass_fds=lent.files,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, Exit.ENVIRONMENT, "", f"it took over {SECONDS:.0f} s")


def _judged(done: subprocess.CompletedProcess[str]) -> tuple[str, str]:
    """Return the verdict on a target as its own candidate, and its reason or the error."""
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    judged = next((e for e in reversed(events) if e.get("type") == "candidate.verdict"), None)
    if judged is None:
        return "error", last_words(done)
    right = judged["verdict"] == "no_change" and done.returncode == Exit.DONE
    return "right" if right else str(judged["verdict"]), str(judged["reason"])


def last_words(done: subprocess.CompletedProcess[str]) -> str:
    """Return what a command said in the end: its error, or its last lines."""
    text = (done.stderr if done.returncode else done.stdout).strip()
    at = text.rfind("error: ")
    return " ".join((text[at:] if at >= 0 else text[-500:]).split())[:600]
