"""What a value of a kernel is to the simulator, a role that grows, and the ways in which a run can end early."""

from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TypeAlias

from pgo_agent.sandbox.gate.barriers.program import At, Step
from pgo_agent.sandbox.gate.barriers.terms import Number, Term
from pgo_agent.sandbox.ttgir.locations import Frames


class Undecided(Exception):
    """Something that decides about a barrier cannot be known; the message says what and where."""


class TooLong(Undecided):
    """A run that takes more operations than are followed."""


class Impossible(Exception):
    """The choices made contradict what the kernel assumes (llvm.intr.assume)."""


class Choose(Exception):
    """A number has to be chosen: how often a loop runs (trips), whether a condition holds (flag), a value (value)."""

    def __init__(self, term: Term, kind: str, what: str, at: str) -> None:
        super().__init__(what)
        self.term, self.kind, self.at = term, kind, at


@dataclass(frozen=True)
class Memory:
    """A place in shared memory: an allocation, or a part of it."""

    name: str
    bytes: int
    index: tuple[Number | None, ...] = ()
    slot: tuple[Number | None, ...] | None = ()  # the whole of which slot of the allocation it is; None: of none


@dataclass(frozen=True)
class Token:
    """Copies of cp.async that were started, and the group that they are in, or that the next commit makes of them."""

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
    followed: bool = True  # what is run is what the role does, and not one of two ways of which neither is known


def place(frames: Frames) -> str:
    """A location as "kernel.py:20", or empty: its innermost call that is not of Triton's own library."""
    located = [f for f in frames if f.line]
    outside = [f for f in located if "/triton/" not in f.file]
    return next((f"{PurePosixPath(f.file).name}:{f.line}" for f in (*outside, *located[-1:])), "")
