"""The facts of a run beside its settings: versions, models by role, prices, and given files.

They are collected when the run begins and stored with its settings; a resumed run keeps them. Data only.
"""

from dataclasses import dataclass, field

from pgo_agent.agent.version import Version
from pgo_agent.sandbox.json_codec import Record


@dataclass(frozen=True)
class GivenFile:
    """A candidate file that a person gave to be judged."""

    name: str  # of the file, as it was given
    kind: str  # `source`, a whole file with another kernel part, or `ttgir`
    source: str


@dataclass(frozen=True)
class Cost(Record):
    """What a run takes, in the order in which people are told."""

    builds: float  # configurations of cases that are built
    seconds: float  # of wall clock, without the time in which somebody else thinks
    gpu_seconds: float
    tokens: float
    money: float | None  # None: no price is known


@dataclass(frozen=True)
class RunFacts:
    """Every fact may be missing: a run of another version did not record it."""

    triton: str = ""  # version that compiles; empty: not recorded
    pgo_agent: Version | None = None
    models: dict[str, str] = field(default_factory=dict)  # role -> model, by a name that is good in any folder
    prices: dict[str, tuple[float, float]] = field(default_factory=dict)  # model -> of a million tokens, in and out
    against: str = ""  # what a given candidate must not be slower than, by its name; empty: it is to be faster
    given: tuple[GivenFile, ...] = ()  # the candidates to judge, and no others; empty: the run looks for its own
    open_to: str = ""  # who submits its candidates while it goes on, and nobody else; empty: the run looks for its own
    expected: Cost | None = None  # what it was estimated to take; None: there was nothing to estimate it by
    idle: float = 0.0  # seconds without a submission after which an open run ends
