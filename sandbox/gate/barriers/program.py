"""An abstract barrier program: a few roles, each a list of steps on mbarriers, with loops unrolled.

A role stands for all warps of a region (the kernel, a default region, a partition) as one; warps of a role that drift
apart are not modelled. Steps of different roles interleave freely. Of data only the reads and writes of slots of shared
memory are modelled; such steps never block.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


@dataclass(frozen=True)
class At:
    """The location of a step in the text."""

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
    """Bytes of a TMA copy, or arrivals after cp.async, that reach the barrier some time later."""

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
    """Asynchronous work that a role awaits in groups, oldest first."""

    DOTS = "dot"  # wgmma that read shared memory
    COPIES = "copy"  # cp.async into it
    STORES = "store"  # TMA out of it


@dataclass(frozen=True)
class Access:
    """A read or write of whole slots of shared memory: now, or from now until its group was awaited."""

    slots: tuple[str, ...]
    writes: bool
    what: str  # its name in messages: dot, load, copy
    queue: Queue | None = None  # None: done with this step
    at: At = NOWHERE
    by_threads: bool = False  # a write that wgmma and TMA see only behind a fence


@dataclass(frozen=True)
class Commit:
    """Groups what was put into the queue since the last group; the group may be empty."""

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
    """Makes writes by threads visible to wgmma and TMA, which use another proxy (PTX, proxies)."""

    at: At = NOWHERE


@dataclass(frozen=True)
class Free:
    """Frees an allocation: its memory may then be reused."""

    name: str
    at: At = NOWHERE


@dataclass(frozen=True)
class Forget:
    """A skipped operation that may have waited for the role's queues: their content counts as done."""

    at: At = NOWHERE


Use: TypeAlias = Access | Commit | Drain | Fence | Free | Forget
Step: TypeAlias = Init | Arrive | Copy | Wait | Inval | Fork | Join | Use


@dataclass(frozen=True)
class Program:
    roles: dict[str, tuple[Step, ...]]  # by name; a role runs once it is forked
    entry: str = "kernel"  # the role that runs from the start
    tracked: frozenset[str] = frozenset()  # allocations that nothing but the steps writes to
