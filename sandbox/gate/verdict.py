"""Verdicts as data: the outcome of a candidate, its stage, the reason and the evidence.

A verdict is never better than its evidence: `checked` and `accepted` need coverage, and are downgraded without it.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pgo_agent.sandbox.gate import coverage as covers
from pgo_agent.sandbox.gate import reason as reasons
from pgo_agent.sandbox.gate.coverage import NOTHING, Coverage
from pgo_agent.sandbox.gate.reason import Reason, plain


class Verdict(StrEnum):
    ACCEPTED = "accepted"  # correct, and faster than the incumbent beyond the noise, twice
    SLOWER = "slower"  # surely not faster than the incumbent beyond the noise
    NO_CHANGE = "no_change"  # the same code and plan as one judged before
    UNDECIDED = "undecided"  # a stage could not decide; at `time`: the samples do not decide
    BUILT = "built"  # compiles; nothing could check it here
    CHECKED = "checked"  # right results in Triton's interpreter; not measured
    WRONG = "wrong"  # results differ from the reference
    RACE = "race"  # results differ between repeats, or a sanitizer found a race
    DEADLOCK = "deadlock"  # barriers that can never be passed
    TIMEOUT = "timeout"  # did not end before its deadline
    CRASHED = "crashed"  # ended in a CUDA error, or the process died
    BUILD_ERROR = "build_error"  # does not trace or does not compile
    REJECTED = "rejected"  # breaks a rule for bundles or candidates
    CHEATING = "cheating"  # caught gaming the measurement
    VETOED = "vetoed"  # a person did not want it judged: its result is unknown


# What a verdict becomes if nothing was covered.
_UNCOVERED = {Verdict.CHECKED: Verdict.BUILT, Verdict.ACCEPTED: Verdict.UNDECIDED}


@dataclass(frozen=True)
class Judgement:
    """The outcome for one candidate."""

    verdict: Verdict
    stage: str  # build, screen, inspect, deadlock, known, static, interpreter; of a judge: smoke, ..., race, confirm
    why: Reason
    evidence: dict[str, Any] = field(default_factory=dict)  # plain JSON: errors per case, seeds, raw samples
    coverage: Coverage = NOTHING  # what the verdict rests on

    def __post_init__(self) -> None:
        if self.coverage.empty and self.verdict in _UNCOVERED:
            object.__setattr__(self, "verdict", _UNCOVERED[self.verdict])
            object.__setattr__(self, "why", plain("nothing was checked: ") + self.why)

    @property
    def reason(self) -> str:
        """Why, in one line, for a person."""
        return self.why.for_person()

    def as_json(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"verdict": str(self.verdict), "stage": self.stage, "evidence": self.evidence}
        fields |= {"reason": self.reason, "why": self.why.as_json()}
        return fields if self.coverage == NOTHING else fields | {"coverage": self.coverage.as_json()}


def from_json(x: dict[str, Any]) -> Judgement:
    """Read what `as_json` of this or an older judge gave."""
    why = reasons.from_json(x["reason"], x.get("why"))
    return Judgement(Verdict(x["verdict"]), x["stage"], why, x["evidence"], covers.from_json(x.get("coverage")))
