"""Verdicts are data: what a candidate came to, at which stage, why, and the evidence for it."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    ACCEPTED = "accepted"  # correct, and faster than the incumbent beyond the noise, twice
    SLOWER = "slower"  # surely not faster than the incumbent by more than the noise
    NO_CHANGE = "no_change"  # the very code and plan of one judged before
    UNDECIDED = "undecided"  # a stage could not decide; at `time`: the samples do not tell
    BUILT = "built"  # compiles; nothing could check it here
    CHECKED = "checked"  # right results in Triton's interpreter; not measured
    WRONG = "wrong"  # results differ from the reference
    RACE = "race"  # results differ between repeats, or a sanitizer says so
    DEADLOCK = "deadlock"  # barriers that can never be passed
    TIMEOUT = "timeout"  # did not end before its deadline
    CRASHED = "crashed"  # ended in a CUDA error, or the process died
    BUILD_ERROR = "build_error"  # does not trace or does not compile
    REJECTED = "rejected"  # breaks a rule of bundles, or does what a candidate may not
    CHEATING = "cheating"  # caught gaming the measurement
    VETOED = "vetoed"  # a person did not want it judged: nothing is known of it


def shown(case: str) -> str:
    """A case's name for a reason that proposers see: held-out ones are not named."""
    return "a held-out case" if case.startswith("HELD_OUT/") else case.split("/", 1)[-1]


@dataclass(frozen=True)
class Judged:
    """The outcome for one candidate."""

    verdict: Verdict
    stage: str  # build, screen, inspect, deadlock, known, static, interpreter; of a judge: smoke, ..., race, confirm
    reason: str  # one line that a person understands
    evidence: dict[str, Any] = field(default_factory=dict)  # plain JSON: errors per case, seeds, raw samples

    def as_json(self) -> dict[str, Any]:
        return {"verdict": str(self.verdict), "stage": self.stage, "reason": self.reason, "evidence": self.evidence}


def from_json(x: dict[str, Any]) -> Judged:
    return Judged(Verdict(x["verdict"]), x["stage"], x["reason"], x["evidence"])
