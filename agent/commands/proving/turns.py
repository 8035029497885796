"""Runs a program with and without a patch in turns: without, with, with, without, each in a fresh process.

So a drift of the machine falls on both alike, and the program is also compared with itself. It relies on
`sandbox/user_script.py`, which runs in the program's own interpreter with the rights of whoever calls.
"""

import json
import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pgo_agent.sandbox import json_codec, user_script
from pgo_agent.sandbox.errors import EnvironmentFault, UsageFault
from pgo_agent.sandbox.json_codec import JsonObject, Record
from pgo_agent.sandbox.temporary_folders import temporary_folder

COMPARES = Path(user_script.__file__).with_name("compare_outputs.py")  # which imports torch
ORDER = ("without", "with", "with", "without")
SHOWN = 1500  # characters of a program's last words
NAME_THEM = "the program sets `outputs = {...}` (tensors, numbers) at its top level, or --outputs NAME says what else"
HINT = "for example: pgo-agent prove -- python infer.py"


@dataclass(frozen=True)
class Program:
    """What is run, and what it calls its results."""

    words: tuple[str, ...]  # `python script.py ARGS` or `python -m module ARGS`
    outputs: str = "outputs"  # a variable: a tensor, or a dict of them
    seconds: str = "seconds"  # a variable: a list, of each step


@dataclass(frozen=True)
class Changes:
    """What is not as it was on one side."""

    files: Mapping[str, str] = field(default_factory=dict)  # path of a module -> file that takes its place
    packages: tuple[str, ...] = ()  # folders that are imported first, and take over launches

    def __bool__(self) -> bool:
        return bool(self.files or self.packages)


@dataclass(frozen=True)
class Answer(Record):
    """What one process left."""

    used: list[str]  # replaced files that it imported, packages that took over launches
    whole: float  # seconds, imports included
    seconds: list[float]  # of its steps; empty: it names none
    outputs: list[str]  # names of what it gave

    @property
    def time(self) -> float:
        """Seconds of a step: the median; without steps, of the whole program."""
        return statistics.median(self.seconds) if self.seconds else self.whole


def interpreter(words: Sequence[str]) -> str:
    """Return the Python of a command line. Raises UsageFault for what is none."""
    if len(words) < 2 or not Path(words[0]).name.startswith("python"):
        raise UsageFault(f"this is run by no Python: {' '.join(words)}", HINT)
    found = shutil.which(words[0])
    if found is None:
        raise UsageFault(f"there is no {words[0]}", HINT)
    return found


def run(program: Program, changes: Changes, folder: Path, seconds: float) -> Answer:
    """Run it once. `folder`: for what it leaves.

    Raises UsageFault where it fails, takes longer than `seconds`, names no outputs, does not import what is replaced,
    or launches nothing that a package takes over.
    """
    folder.mkdir()
    request = {"files": dict(changes.files), "packages": changes.packages}
    request |= {"outputs": program.outputs, "seconds": program.seconds}
    (folder / "request.json").write_text(json.dumps(request))
    words = [interpreter(program.words), user_script.__file__, str(folder), *program.words[1:]]
    try:
        ran = subprocess.run(words, capture_output=True, text=True, timeout=seconds, check=False, env=os.environ)
    except subprocess.TimeoutExpired:
        raise UsageFault(f"the program ran for over {seconds:.0f} s", "give it less to do, or more --minutes") from None
    which = "with the patch" if changes else "without the patch"
    try:
        answer = Answer.from_json(json_codec.from_json(JsonObject, json.loads((folder / "answer.json").read_bytes())))
    except (OSError, ValueError):
        said = (ran.stderr or ran.stdout).strip()[-SHOWN:]
        raise UsageFault(f"{which} the program ended with {ran.returncode}:\n{said}", "mend that first") from None
    if unused := [p for p in changes.packages if p not in answer.used]:
        warned = [line for line in ran.stderr.splitlines() if line.endswith("the original runs")]
        why = warned[-1] if warned else "none of its launches is one that was judged"
        raise UsageFault(f"{', '.join(unused)} took over no launch of the program: {why}", "trace this very program")
    if unused := [f for f in changes.files if f not in answer.used]:
        raise UsageFault(f"the program never imports {', '.join(unused)}", "name the module that it runs")
    if not answer.outputs:
        raise UsageFault("the program names no outputs, so nothing says that it still computes the same", NAME_THEM)
    return answer


def compared(program: Program, files: Sequence[Path]) -> list[dict[str, JsonObject]]:
    """Return how the outputs of each further process differ from the first one's, by name."""
    words = [interpreter(program.words), str(COMPARES), *map(str, files)]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    try:
        found: list[dict[str, JsonObject]] = json_codec.from_json(list[dict[str, JsonObject]], json.loads(ran.stdout))
    except ValueError:
        raise EnvironmentFault(f"the outputs could not be compared: {ran.stderr[-SHOWN:]}", "try again") from None
    return found


def all_turns(
    program: Program,
    changes: Changes,
    turns: int,
    seconds: float,
    tell: Callable[[int, str, float], None],
) -> tuple[list[dict[str, list[Answer]]], list[dict[str, JsonObject]], list[str]]:
    """Run the turns that `seconds` reach for, the first in any case; return the answers of each by side, how outputs
    differ from those of the first process, and the side of each of those. `tell`: is told of each process. Raises what
    `run` raises."""
    result, sides, kept = list[dict[str, list[Answer]]](), list[str](), list[Path]()
    with temporary_folder("prove") as name:
        began = time.monotonic()
        for turn in range(turns):
            if turn and (time.monotonic() - began) * (turn + 1) / turn > seconds:  # another one as long does not fit
                break
            by_side: dict[str, list[Answer]] = {"without": [], "with": []}
            for side in ORDER:
                folder = name / f"{turn}-{side}-{len(by_side[side])}"
                answer = run(program, changes if side == "with" else Changes(), folder, seconds)
                by_side[side].append(answer)
                if turn == 0:
                    kept.append(folder / "outputs")
                    sides.append(side)
                else:
                    (folder / "outputs").unlink(missing_ok=True)
                tell(turn, side, answer.time)
            result.append(by_side)
        found = compared(program, kept) if len(kept) > 1 else []
    return result, found, sides[1:]
