"""An abstract barrier program: a few roles, each a straight list of steps on mbarriers, with loops already unrolled.

A role stands for all warps of a region (the kernel, a default region, a partition), acting as one: warps of one role
that drift apart are not modelled. Steps of different roles interleave freely. Of data there is only who reads and who
writes which slot of shared memory from when to when; such steps never block.
"""

from dataclasses import dataclass
from enum import StrEnum
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
    slot: str = ""  # of shared memory that the bytes are written to; empty: not known


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


class Queue(StrEnum):
    """What a role starts and later waits for in groups, oldest first."""

    DOTS = "dot"  # wgmma that read shared memory
    COPIES = "copy"  # cp.async into it
    STORES = "store"  # TMA out of it


@dataclass(frozen=True)
class Access:
    """Reads or writes whole slots of shared memory: at once, or from now until its group is waited for."""

    slots: tuple[str, ...]
    writes: bool
    what: str  # as a person calls it: dot, load, copy
    queue: Queue | None = None  # None: done with this step
    at: At = NOWHERE
    by_threads: bool = False  # a write that wgmma and TMA see behind a fence only


@dataclass(frozen=True)
class Commit:
    """Makes a group of what was put into the queue since the last one, be it nothing."""

    queue: Queue
    at: At = NOWHERE


@dataclass(frozen=True)
class Drain:
    """Waits for all groups of the queue but the last ones."""

    queue: Queue
    pending: int = 0
    at: At = NOWHERE


@dataclass(frozen=True)
class Fence:
    """Makes what threads have written visible to wgmma and TMA, which read shared memory otherwise (PTX, proxies)."""

    at: At = NOWHERE


@dataclass(frozen=True)
class Free:
    """Gives an allocation back: its memory is then another's."""

    name: str
    at: At = NOWHERE


@dataclass(frozen=True)
class Forget:
    """Something was passed over that may have waited for whatever is in the role's queues: all of it counts as done."""

    at: At = NOWHERE


Use: TypeAlias = Access | Commit | Drain | Fence | Free | Forget
Step: TypeAlias = Init | Arrive | Copy | Wait | Inval | Fork | Join | Use


@dataclass(frozen=True)
class Program:
    roles: dict[str, tuple[Step, ...]]  # by name; a role runs once it is forked
    entry: str = "kernel"  # the role that runs from the start
