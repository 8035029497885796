"""The steps of a judge process in which only the target's own code runs: its reference, and its kernel as shipped.

On a GPU a wrong index in them is an assertion that ends the process, and a stress input such as a NaN may bring it
about. No candidate is to blame for that, and none may be able to cause it: a step that ended a process is tried again
in one in which no candidate ran. Holds how such a step is announced, and what is known of those that ended a process.
`gpu_judge.py` asks, `results/stress_runs.py` answers. Runs nothing.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum, auto

SEVERAL = 3  # stress inputs of one kind, after which no other of it is tried
INPUT = " in input "  # in the name of a stress input of one tensor, before its number
_ANNOUNCED = re.compile(r"reference (\S+)(?: with (.+))?")


@dataclass(frozen=True)
class OwnStep:
    """The reference on a case; with a stress input the kernel as shipped, too."""

    case: str
    stress_input: str = ""  # name; empty: none

    @property
    def announced(self) -> str:
        return f"reference {self.case}" + (f" with {self.stress_input}" if self.stress_input else "")


def read(stage: str) -> OwnStep | None:
    """Return the step that a process announced so; None: a candidate's kernel may have run in it."""
    found = _ANNOUNCED.fullmatch(stage)
    return OwnStep(found[1], found[2] or "") if found else None


def is_unfit(stress_input: str, unfit: Collection[str]) -> bool:
    """Return whether a stress input is left out: itself, or all of its kind."""
    return stress_input in unfit or _kind(stress_input) in unfit


def _kind(stress_input: str) -> str:
    return f"{stress_input.split(INPUT)[0]}{INPUT}*"


class Alone(Enum):
    """What became of a step in a process of its own."""

    BORNE = auto()
    UNFIT = auto()
    KILLED = auto()  # by somebody else


@dataclass
class OwnSteps:
    """What is known of one target."""

    unfit: set[str] = field(default_factory=set)  # stress inputs that end the process by themselves, and whole kinds
    borne: set[OwnStep] = field(default_factory=set)  # that ended a process, and did not end one without a candidate

    def leave_out(self, stress_input: str) -> None:
        """Leave one out, and its whole kind where several of that are: each costs two processes."""
        self.unfit.add(stress_input)
        if sum(_kind(n) == _kind(stress_input) for n in self.unfit) >= SEVERAL:
            self.unfit.add(_kind(stress_input))
