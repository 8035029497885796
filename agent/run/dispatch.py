"""What was proven of a dispatch, as data: winners of a run behind guards, and what each region rests on.

`pgo-agent dispatch` keeps it, views print it, `apply --dispatch` asks for it. It proves nothing.
"""

from dataclasses import dataclass

from pgo_agent.agent.run.regression import Outcome, Ratio
from pgo_agent.sandbox.json_codec import Record


@dataclass(frozen=True)
class RegionProof(Record):
    """A region with its evidence."""

    candidate: str
    move: str
    guard: str  # Python over the launcher's arguments
    cases: dict[
        str, Ratio | None
    ]  # case or probe that falls into it -> times faster than the original; None: not timed


@dataclass(frozen=True)
class Proof(Record):
    """What was proven of a dispatch."""

    run: str
    target: str  # the user's file
    digest: str  # of it, as the run began
    gpu: str  # that it was proven on, and runs on alone
    outcome: str  # of Outcome, or a verdict that says what is wrong
    said: str
    regions: tuple[RegionProof, ...]
    same: tuple[str, ...]  # cases and probes in which its launches are the original's
    failing: dict[str, str]  # probes in which the original fails, and the dispatch alike -> how
    host_us: dict[str, float]  # case -> microseconds that the guards take
    narrowed: tuple[str, ...] = ()  # what became of regions on the way
    judged: str = ""  # the run that judged it; empty: nothing had to be
    candidate: str = ""  # in it

    @property
    def proven(self) -> bool:
        return self.outcome == Outcome.NOT_SLOWER
