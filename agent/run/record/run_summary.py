"""The summary of a run, as in the record and the last event: why it failed, what its last session on the GPU measured,
or, without a GPU, a ranking of what was built. Data only; `agent/search/finish.py` makes it.
"""

import json
from dataclasses import dataclass, field
from functools import lru_cache

from pgo_agent.agent.run.record.baseline import TimeSource, Unfit
from pgo_agent.sandbox.gate.coverage import Coverage
from pgo_agent.sandbox.json_codec import OPTIONAL, Malformed, Record
from pgo_agent.sandbox.judge.machine import Environment

Bounds = tuple[float, float, float]  # of a ratio: low, middle, high


@dataclass(frozen=True)
class SideRate(Record):
    """A side in a case."""

    ms: float  # median
    rate: float
    unit: str


@dataclass(frozen=True)
class CaseRates(Record):
    """A case in the last session."""

    sides: dict[str, SideRate]
    noise: Bounds  # what the kernel as shipped seems to gain over itself
    # baseline -> how many times faster the winner is; None without a winner
    ratio: dict[str, Bounds] | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True)
class LaunchedPlan(Record):
    """What a side launches in a case."""

    choice: str  # label of its configuration
    plan_id: str
    codes: tuple[str, ...]  # code ids


@dataclass(frozen=True)
class Picked(Record):
    """What triton.autotune picks in a case."""

    said: str  # the configuration
    problem: str  # why it is not right; empty: it is


@dataclass(frozen=True)
class KnownRate(Record):
    """The known rate of a configuration that this run did not measure."""

    choice: str
    ms: float
    how: TimeSource
    rate: float
    unit: str


@dataclass(frozen=True)
class RankedCandidate(Record):
    """A candidate in the ranking."""

    candidate: str
    move: str
    verdict: str
    relative: float | None  # its time over the tuned baseline's; None: unknown
    how: str  # the source of that number, in words
    cases: dict[str, KnownRate]  # its best new configuration
    coverage: Coverage  # what its verdict rests on


@dataclass(frozen=True)
class FailedRun(Record):
    error: str  # the message for a person


@dataclass(frozen=True, kw_only=True)
class MeasuredRun(Record):
    """What the last session measured: every side on every public case."""

    winner: str | None  # id of a candidate
    against: dict[str, Bounds]  # baseline -> how many times faster the winner is: geometric mean; empty without one
    cases: dict[str, CaseRates]
    times: dict[str, dict[str, tuple[float, ...]]]  # case -> side -> ms, in the order of the rounds
    environment: Environment
    sides: dict[str, dict[str, LaunchedPlan]]  # baseline or id of the winner -> case -> plan
    autotuned: dict[str, Picked]
    unfit: tuple[Unfit, ...]
    seconds: float  # of wall clock, over all resumptions
    # case -> why torch.compile of the reference has no time there; None: it was not asked for
    uncompiled: dict[str, str] | None = field(default=None, metadata=OPTIONAL)
    # library -> case -> why it has no time there, or why its results would not be accepted
    libraries: dict[str, dict[str, str]] | None = field(default=None, metadata=OPTIONAL)


def no_time(why: str) -> str:
    """Return what stands in place of a library's time, by why there is none: a word for a table."""
    return "not installed" if "ModuleNotFoundError" in why else "refused"


@dataclass(frozen=True, kw_only=True)
class RankedRun(Record):
    """What is known without a GPU."""

    winner: None = None
    ranking: tuple[RankedCandidate, ...]  # the best first
    cases: dict[str, dict[str, KnownRate]]  # case -> shipped, tuned -> its configuration
    environment: None = None
    device: str  # name of the GPU that was compiled for
    varied: tuple[str, ...]  # kernels whose launch grid was built
    seconds: float  # of wall clock, over all resumptions


RunSummary = FailedRun | MeasuredRun | RankedRun


@lru_cache(maxsize=4)  # it holds raw samples, and whoever draws a run asks again and again
def read(text: str) -> RunSummary:
    """Return the summary in a recorded text. Raises ValueError for anything else."""
    value = json.loads(text)
    if not isinstance(value, dict):
        raise Malformed("a summary is a JSON object")
    kind = FailedRun if "error" in value else RankedRun if "ranking" in value else MeasuredRun
    return kind.from_json(value)
