"""The values of a kernel in the simulator, a role that grows, and the exceptions that end a run early."""

from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TypeAlias

from pgo_agent.sandbox.gate.barriers.program import At, Step
from pgo_agent.sandbox.gate.barriers.terms import Number, Term
from pgo_agent.sandbox.ttgir.locations import Frames


class Undecided(Exception):
    """A barrier depends on something unknown; the message says what and where."""


class TooLong(Undecided):
    """A run takes more operations than are followed."""


class Impossible(Exception):
    """The choices made contradict what the kernel assumes (llvm.intr.assume)."""


class Choose(Exception):
    """A number has to be chosen: how often a loop runs (trips), whether a condition holds (flag), a value (value)."""

    def __init__(self, term: Term, kind: str, what: str, at: str, rounds: int) -> None:
        super().__init__(what)
        self.term, self.kind, self.at = term, kind, at
        self.rounds = rounds  # how often the loops around it run, all together


@dataclass(frozen=True)
class Memory:
    """A place in shared memory: an allocation, or a part of it."""

    name: str
    bytes: int
    index: tuple[Number | None, ...] = ()
    slot: tuple[Number | None, ...] | None = ()  # the slot that it is all of; None: a part, or more


@dataclass(frozen=True)
class Token:
    """Started cp.async copies, with their group or the group that the next commit will make."""

    group: int | None  # None: not known
    at: At


Value: TypeAlias = int | Term | Memory | Token | None  # None: anything else, or not known
Frame: TypeAlias = dict[str, Value]


@dataclass
class Role:
    """A role while its list of steps grows."""

    name: str
    threads: int
    steps: list[Step] = field(default_factory=list)
    groups: int | None = 0  # of cp.async, committed so far; None once that is not known
    followed: bool = True  # the role really runs this, which is not so in an unknown branch


def place(frames: Frames) -> str:
    """Return a location as "kernel.py:20", or empty: the innermost call outside of Triton's own library."""
    located = [f for f in frames if f.line]
    outside = [f for f in located if "/triton/" not in f.file]
    return next((f"{PurePosixPath(f.file).name}:{f.line}" for f in (*outside, *located[-1:])), "")
