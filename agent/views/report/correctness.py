"""The evidence that a candidate is right: comparisons with the reference, stress inputs, races, and confirmation."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pgo_agent.agent.evaluation import coverage_text
from pgo_agent.agent.views.report.lineage import Stage, Tried
from pgo_agent.agent.views.report.timings import short
from pgo_agent.sandbox.gate.coverage import NOTHING

FIRST, AGAIN = "first look", "again, in a fresh process"


@dataclass(frozen=True)
class Comparison:
    """One output of one launch against the float64 reference."""

    look: str  # FIRST, AGAIN, or the stage that it was made in
    case: str
    stress_input: str  # name of the change to the inputs; empty: none
    seed: str
    output: int
    worst: float  # max |x - ref|
    worst_allowed: float
    mean: float
    mean_allowed: float
    problem: str
    yardstick: str = ""  # the arithmetic that the bounds are computed from; empty: torch's own
    shipped: bool = False  # whether the errors of the kernel as shipped set bounds, too

    @property
    def under(self) -> str:
        """Return the case, with the stress input that it was under."""
        return f"{self.case} with {self.stress_input}" if self.stress_input else self.case

    @property
    def share(self) -> float:
        """Return the error as a share of its bound, by the nearer of both bounds."""
        pairs = ((self.worst, self.worst_allowed), (self.mean, self.mean_allowed))
        return max((e / b if b else (0.0 if not e else float("inf"))) for e, b in pairs)


@dataclass(frozen=True)
class Proof:
    """The evidence for one candidate."""

    candidate: str
    move: str
    comparisons: tuple[Comparison, ...]
    dropped: tuple[tuple[str, str, str], ...]  # case, stress input, why it does not count: each once
    stages: tuple[Stage, ...]
    disturbed: tuple[str, ...]  # batches of samples that were discarded, and why
    noise: str  # of the session in which it was accepted; empty when nothing was timed
    covered: str = ""  # the verdict's coverage, in words; empty when not recorded

    @property
    def worst(self) -> Comparison | None:
        return max(self.comparisons, key=lambda c: c.share, default=None)

    @property
    def under_stress(self) -> int:
        """Return the number of different stress inputs."""
        return len({c.stress_input for c in self.comparisons if c.stress_input})

    @property
    def yardsticks(self) -> str:
        """Return the arithmetics, other than torch's, from which bounds are computed."""
        return ", ".join(dict.fromkeys(c.yardstick for c in self.comparisons if c.yardstick))

    @property
    def by_shipped(self) -> str:
        """Return the cases in which the errors of the kernel as shipped set bounds, too."""
        return ", ".join(dict.fromkeys(c.case for c in self.comparisons if c.shipped))

    @property
    def cases(self) -> int:
        return len({c.case for c in self.comparisons})

    @property
    def seeds(self) -> int:
        return len({c.seed for c in self.comparisons})

    def stage(self, name: str) -> Stage | None:
        """Return the last stage of that name."""
        return next((s for s in reversed(self.stages) if s.name == name), None)


def proof(tried: Tried, evidence: Mapping[str, Any]) -> Proof:
    bodies = [(stage, b) for stage, b in evidence.items() if isinstance(b, dict) and stage != "samples"]
    looks = [look for stage, b in bodies for look in _looks(stage, b)]
    dropped = ((short(d["case"]), str(d["strain"]), str(d["why"])) for _, b in looks for d in b.get("dropped", ()))
    return Proof(
        tried.id,
        tried.move,
        tuple(c for look, b in looks for c in comparisons(look, b)),
        tuple(dict.fromkeys(dropped)),
        tried.stages,
        tuple(str(x) for _, b in looks for x in b.get("disturbed", ())),
        _noise(looks),
        "" if (coverage := coverage_text.of(evidence)) == NOTHING else coverage.said(),
    )


def _looks(stage: str, body: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    again = body.get("again")
    yield (FIRST if again else stage), body
    if isinstance(again, dict):
        yield AGAIN, again


def comparisons(look: str, body: Mapping[str, Any]) -> Iterator[Comparison]:
    """Yield every comparison in the evidence of a stage, without those of a second look."""
    for check in (*body.get("numerics", ()), *([body["check"]] if body.get("check") else ())):
        about = (look, short(check["case"]), str(check.get("strain") or ""), str(check["seed"]))
        for i, (error, bounds) in enumerate(zip(check["errors"], check["bounds"], strict=False)):
            figures = (float(error["max"]), float(bounds[0]), float(error["mean"]), float(bounds[1]))
            said = str(check["problem"]), str(check.get("yardstick") or "")
            yield Comparison(*about, i, *figures, *said, bool(check.get("shipped")))


def _noise(looks: list[tuple[str, Mapping[str, Any]]]) -> str:
    recorded = [b["noise"] for _, b in looks if b.get("noise")]
    if not recorded:
        return ""
    low, mid, high = recorded[-1]
    return f"{mid:.4f}x [{low:.4f}, {high:.4f}]"
