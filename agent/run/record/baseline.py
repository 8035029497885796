"""The baselines of a run as recorded: every configuration that was tried, the best of each case on each side, and the
cases. Data only; `agent/evaluation/baseline.py` makes it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from pgo_agent.sandbox.bundle.documents import Config, Static
from pgo_agent.sandbox.gate.call_difference import Differences
from pgo_agent.sandbox.json_codec import OPTIONAL, JsonObject, Record
from pgo_agent.sandbox.judge.machine import Environment


class TimeSource(StrEnum):
    """Where a time comes from."""

    MEASURED = "measured"  # by this run, on its GPU
    RECORDED = "recorded"  # of this very code on such a GPU: it ships with the project
    ESTIMATE = "estimate"  # by the static profile


@dataclass(frozen=True)
class Work(Record):
    """The work of a case, by the target."""

    flops: int | float
    bytes: int | float


@dataclass(frozen=True, kw_only=True)
class KnownTime(Record):
    """The time of a configuration in a case."""

    ms: float | None  # in the median; None: it has none
    how: TimeSource
    problem: str = ""  # why its results are not right; empty: nothing is known to be wrong
    # timed side by side with the best of its case; None: there is no such difference
    finalist: bool | None = field(default=None, metadata=OPTIONAL)

    @property
    def apart(self) -> bool:
        """Whether it was timed apart from the best of its case, so that it must not be compared with them."""
        return self.finalist is False

    @property
    def rank(self) -> tuple[bool, bool, float]:
        """Return the key to sort by, the best first: times before estimates, and those that were timed side by side
        before the rest, so that comparisons are not mixed."""
        return self.how is TimeSource.ESTIMATE, self.apart, self.time

    @property
    def time(self) -> float:
        """Return its milliseconds. Raises ValueError if it has none."""
        if self.ms is None:
            raise ValueError("a configuration without a time is asked for it")
        return self.ms


@dataclass(frozen=True, kw_only=True)
class BaselinePoint(KnownTime):
    """One configuration of the kernel in one case."""

    case: str
    bundle: str
    choice: str  # its label in the bundle
    said: str  # how people are shown it
    config: Config  # launch parameters, with what stands in the text for launches that are not autotuned
    plan_id: str
    codes: tuple[str, ...]  # code ids of what it launches
    # their static profiles; left out of the best of each case
    statics: tuple[Static, ...] = field(default=(), metadata=OPTIONAL)
    samples: tuple[float, ...] | None = field(default=None, metadata=OPTIONAL)  # ms; None: nothing was measured
    # how its results compare with the reference, as the judge reported
    check: JsonObject | None = field(default=None, metadata=OPTIONAL)
    taken_on: dict[str, str] | None = field(default=None, metadata=OPTIONAL)  # UUID and index of the GPU


@dataclass(frozen=True)
class Unfit(Record):
    """A configuration of the file's own list that is wrong, ends badly or does not build."""

    case: str
    said: str  # the configuration, or what became of its build
    why: str
    ms: float | None  # None: it has no time


Best = dict[str, BaselinePoint]  # case -> the configuration that stands for a side


@dataclass(frozen=True, kw_only=True)
class Baseline(Record):
    """What candidates are measured against."""

    cases: tuple[str, ...]  # public ones, by set and name
    held_out: tuple[str, ...]
    held_out_bundle: str
    work: dict[str, dict[str, Work]]  # set -> name -> work
    weights: dict[str, float] | None  # of public cases; None: all count alike
    nondeterministic: bool  # whether the kernel may give other bits each time
    libraries: tuple[str, ...]  # of the target, timed beside the last session
    allowed_ops: tuple[str, ...]  # torch operations that the kernel as shipped calls
    shipped: Best  # the fastest right one of the file's own list
    autotuned: Best  # the fastest of that list, right or not; no case of which none has a time
    tuned: Best  # the fastest right one of all
    varied: tuple[str, ...]  # kernels whose launch grid was built
    points: tuple[BaselinePoint, ...]
    unfit: tuple[Unfit, ...]
    failures: tuple[str, ...]  # of builds: a line each
    environment: Environment | None  # of the GPU that measured; None: nothing was measured
    # case -> what kernel() does differently when it is called again; None: not known
    again: Differences | None = field(default=None, metadata=OPTIONAL)

    def best(self, side: str) -> Best:
        """Return the configurations of a side. Raises KeyError for an unknown side."""
        return {"shipped": self.shipped, "autotuned": self.autotuned, "tuned": self.tuned}[side]

    def work_of(self, case: str) -> Work:
        """Return the work of a case of any set."""
        name, _, case_name = case.partition("/")
        return self.work[name][case_name]

    def of_case(self, case: str) -> Iterable[BaselinePoint]:
        """Yield every configuration that was tried in a case."""
        return (p for p in self.points if p.case == case)
