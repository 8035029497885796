"""An abstract barrier program: a few roles, each a straight list of steps on mbarriers, with loops already unrolled.

A role stands for all warps of a region (the kernel, a default region, a partition), acting as one: warps of one role
that drift apart are not modelled, nor is anything that moves data. Steps of different roles interleave freely.
"""

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class At:
    """Where a step stands in the program that a person reads."""

    line: int  # of the TTGIR, from 1
    loc: str = ""  # of the source, as "kernel.py:20", where the TTGIR says so

    def __str__(self) -> str:
        return f"line {self.line} ({self.loc})" if self.loc else f"line {self.line}"


NOWHERE = At(0)


@dataclass(frozen=True)
class Init:
    barrier: str
    count: int  # arrivals that complete a phase
    at: At = NOWHERE


@dataclass(frozen=True)
class Arrive:
    """An arrival by the role itself; `barrier_expect` is one arrival that also expects bytes."""

    barrier: str
    count: int = 1
    expects: int = 0  # bytes that copies must bring before the phase completes
    at: At = NOWHERE


@dataclass(frozen=True)
class Copy:
    """Something that reaches the barrier some time later: bytes of a TMA copy, or arrivals when cp.async is done."""

    barrier: str
    brings: int = 0  # bytes
    arrivals: int = 0
    at: At = NOWHERE


@dataclass(frozen=True)
class Wait:
    """Blocks while the parity of the barrier's current phase is `parity`; consumes nothing."""

    barrier: str
    parity: int
    at: At = NOWHERE


@dataclass(frozen=True)
class Inval:
    barrier: str
    at: At = NOWHERE


@dataclass(frozen=True)
class Fork:
    roles: tuple[str, ...]
    at: At = NOWHERE


@dataclass(frozen=True)
class Join:
    roles: tuple[str, ...]
    at: At = NOWHERE


Step: TypeAlias = Init | Arrive | Copy | Wait | Inval | Fork | Join


@dataclass(frozen=True)
class Program:
    roles: dict[str, tuple[Step, ...]]  # by name; a role runs once it is forked
    entry: str = "kernel"  # the role that runs from the start
