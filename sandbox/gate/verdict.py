"""Verdicts as data: the outcome of a candidate, its stage, the reason and the evidence.

A verdict is never better than its evidence: `checked` and `accepted` need coverage, and are downgraded without it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Self

from pgo_agent.sandbox import json_codec
from pgo_agent.sandbox.gate import reason as reasons
from pgo_agent.sandbox.gate.coverage import NOTHING, Coverage
from pgo_agent.sandbox.gate.reason import Reason, plain
from pgo_agent.sandbox.json_codec import JsonObject, Record


class Verdict(StrEnum):
    ACCEPTED = "accepted"  # correct, and faster than the incumbent beyond the noise, twice
    SLOWER = "slower"  # surely not faster than the incumbent beyond the noise
    NOT_SLOWER = "not_slower"  # correct, and no slower than the incumbent beyond the noise, twice: asked of a revision
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
_UNCOVERED = {
    Verdict.CHECKED: Verdict.BUILT,
    Verdict.ACCEPTED: Verdict.UNDECIDED,
    Verdict.NOT_SLOWER: Verdict.UNDECIDED,
}


@dataclass(frozen=True)
class Judgement(Record):
    """The outcome for one candidate."""

    verdict: Verdict
    stage: str  # build, screen, inspect, deadlock, known, static, interpreter; of a judge: smoke, ..., race, confirm
    why: Reason
    evidence: Mapping[str, object] = field(default_factory=dict)  # plain JSON: errors per case, seeds, raw samples
    coverage: Coverage = NOTHING  # what the verdict rests on

    def __post_init__(self) -> None:
        if self.coverage.empty and self.verdict in _UNCOVERED:
            object.__setattr__(self, "verdict", _UNCOVERED[self.verdict])
            object.__setattr__(self, "why", plain("nothing was checked: ") + self.why)

    @property
    def reason(self) -> str:
        """Why, in one line, for a person."""
        return self.why.for_person()

    @property
    def choices(self) -> dict[str, str]:
        """Case -> configuration that a judge chose. Raises KeyError where nothing was launched."""
        return dict(json_codec.from_json(dict[str, str], self.evidence["choices"]))

    @property
    def stages(self) -> list[JsonObject]:
        """What each stage of a judge found, as JSON."""
        return list(json_codec.from_json(tuple[JsonObject, ...], self.evidence.get("stages", ())))

    @property
    def compared(self) -> list[JsonObject]:
        """How the results of each case compare with the reference, as JSON."""
        return list(json_codec.from_json(tuple[JsonObject, ...], self.evidence.get("numerics", ())))

    @property
    def speedup(self) -> float | None:
        """The speedup over what it was measured against; None if nothing was measured."""
        bounds = json_codec.from_json(tuple[float, ...] | None, self.evidence.get("speedup"))
        return bounds[1] if bounds else None

    def with_stages(self, stages: Sequence[JsonObject]) -> Self:
        return replace(self, evidence={**self.evidence, "stages": list(stages)})

    def as_json(self) -> JsonObject:
        fields: JsonObject = {"verdict": str(self.verdict), "stage": self.stage, "evidence": self.evidence}
        fields |= {"reason": self.reason, "why": self.why.as_json()}
        return fields if self.coverage == NOTHING else fields | {"coverage": self.coverage.as_json()}

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Read what `as_json` of this or an older judge gave. Raises KeyError and ValueError for anything else."""
        why, covered = reasons.from_json(value["reason"], value.get("why")), Coverage.from_json(value.get("coverage"))
        return cls(Verdict(value["verdict"]), value["stage"], why, value["evidence"], covered)
