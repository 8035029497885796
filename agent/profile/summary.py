"""The summary of a profile, for the optimizer: frozen dataclasses. `summarize.py` makes them."""

from dataclasses import dataclass

from pgo_agent.agent.profile.findings import Finding
from pgo_agent.sandbox.json_codec import Record


@dataclass(frozen=True)
class Bottleneck(Record):
    """Something that holds a kernel back."""

    kernel: str  # by the name that is launched
    finding: Finding  # with its number and the pass that it came from
    share: float | None  # of the kernel's time that it takes, 0 to 1; None where nothing was timed


@dataclass(frozen=True)
class Summary(Record):
    """One case in short."""

    case: str
    bound: str  # what the work is bound by, and how sure that is: one sentence
    reached: float | None  # share of the roof, 0 to 1; None where nothing was timed
    bottlenecks: tuple[Bottleneck, ...]  # the one that costs most first
    path: tuple[str, ...]  # scopes on the critical path, those with most cycles first; empty where it is not known
    varies: str  # the scope with the highest variation, with its number; empty where it is not known
    changed: tuple[str, ...]  # since the profile that was given to compare with: a sentence each
    tries: tuple[str, ...]  # what to try, the most promising first: a sentence each
    text: str  # all of this within the budget
