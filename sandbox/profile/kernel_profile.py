"""A kernel's profile as a whole: what every pass said of it, and what follows from them together.

A pass that gave nothing leaves a `Missing` with its reason: the others stand without it.
"""

from dataclasses import dataclass
from enum import StrEnum

from pgo_agent.sandbox.json_codec import Record
from pgo_agent.sandbox.profile.counters.types import Counters
from pgo_agent.sandbox.profile.static_profile import Problem, StaticProfile
from pgo_agent.sandbox.profile.timeline.longest_path import ScopeChain
from pgo_agent.sandbox.profile.timeline.types import Timeline


class PassName(StrEnum):
    STATIC = "static"
    TIMELINE = "timeline"
    COUNTERS = "counters"


@dataclass(frozen=True)
class Missing(Record):
    """A pass, or a figure, that is not there."""

    name: str
    why: str  # one line


@dataclass(frozen=True)
class LaunchCount(Record):
    """The launches of a kernel in one call of the launcher."""

    blocks: int  # of the grid of the largest
    count: int  # launches


@dataclass(frozen=True)
class ScopeIpc(Record):
    """Instructions per cycle of one warp in one scope."""

    scope: str
    instructions: float  # of one execution, without those of its records
    cycles: float  # P50 of one execution
    ipc: float


@dataclass(frozen=True)
class Chain(Record):
    """The longest chain of executions that wait for one another, by the P50 of their scopes."""

    length: float  # cycles
    iterations: int  # of the loops that have barriers or asynchronous copies
    scopes: tuple[ScopeChain, ...]  # those with most cycles on it first


@dataclass(frozen=True)
class Roofline(Record):
    """A case's work against what this GPU was seen to reach."""

    flops: float  # of the case, by the target
    bytes: float  # through device memory at least, by the target
    seconds: float  # of one call of the launcher
    how: str  # where the seconds are from
    peak_flops: float  # FLOP/s
    peak_bytes: float  # bytes/s

    @property
    def bound(self) -> str:
        """What would hold a perfect kernel back: `compute` or `memory`."""
        return "compute" if self.flops / self.peak_flops >= self.bytes / self.peak_bytes else "memory"

    @property
    def reached(self) -> float:
        """Share of the roof, 0 to 1: the least time that the work can take, over the time that it took."""
        return max(self.flops / self.peak_flops, self.bytes / self.peak_bytes) / self.seconds

    @property
    def intensity(self) -> float:
        """FLOP per byte; infinite where no byte has to move."""
        return self.flops / self.bytes if self.bytes else float("inf")


@dataclass(frozen=True)
class KernelProfile(Record):
    """One kernel of a case."""

    build: str  # key of its build in the content store
    kernel: str
    launch: LaunchCount
    static: StaticProfile | Problem
    timeline: Timeline | Missing
    counters: Counters | Missing
    chain: Chain | Missing
    ipc: tuple[ScopeIpc, ...] | Missing

    @property
    def missing(self) -> tuple[Missing, ...]:
        """What is not there, in the order of the passes."""
        return tuple(p for p in (self.timeline, self.counters, self.chain, self.ipc) if isinstance(p, Missing))
