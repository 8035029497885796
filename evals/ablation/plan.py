"""The plan of an ablation: a TOML file that is fixed before the first run. Its hash stands in every result.

Relies on `evals/runner/plan_toml.py`, which reads it. What it leaves out has no default: a reader of a result finds
all of it in one place.
"""

from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path

from pgo_agent.agent.run.settings import ProfileVisibility, RunSettings
from pgo_agent.evals.runner import plan_toml
from pgo_agent.evals.runner.plan_toml import SEEDS, TEXTS, Shape, different
from pgo_agent.sandbox import json_codec
from pgo_agent.sandbox.json_codec import JsonObject

METRICS = ("anytime", "final", "right")  # see scores.py
LIMITS = (
    "candidates",
    "patience",
    "minutes",
)  # a run that its minutes end is left out: its builds may serve another arm
HINT = "fix the plan; `pgo-agent eval ablation --help` shows one"


@dataclass(frozen=True, order=True)
class Arm:
    """What differs between runs of one target and seed."""

    model: str  # as `--model` takes it
    insight: ProfileVisibility  # plans and results call it so

    def __str__(self) -> str:
        return f"{self.model}, told {self.insight}"


@dataclass(frozen=True)
class AblationRun:
    """One run."""

    target: str
    seed: int
    arm: Arm

    @property
    def named(self) -> dict[str, str | int]:
        return {"target": self.target, "seed": self.seed, "model": self.arm.model, "insight": str(self.arm.insight)}


@dataclass(frozen=True)
class AblationPlan:
    metric: str  # what is compared: one of METRICS
    targets: tuple[str, ...]  # kernel files, or names of kernels that ship
    insights: tuple[ProfileVisibility, ...]  # the first one is what the others are compared with
    models: tuple[str, ...]
    seeds: tuple[int, ...]
    limits: RunSettings  # of each run: what LIMITS names

    @property
    def digest(self) -> str:
        return plan_toml.digest(self.values)

    @property
    def values(self) -> JsonObject:
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "limits"}
        return values | plan_toml.values_of(self.limits, LIMITS)

    @property
    def runs(self) -> list[AblationRun]:
        """In the order in which they are made: arms of a target and seed stand together, and take turns to be first."""
        arms = [Arm(m, i) for m, i in product(self.models, self.insights)]
        return [
            AblationRun(target, seed, arm)
            for target in self.targets
            for n, seed in enumerate(self.seeds)
            for arm in (*arms[n % len(arms) :], *arms[: n % len(arms)])
        ]

    @property
    def comparisons(self) -> list[tuple[Arm, Arm]]:
        """Each arm after the one it is compared with: the same model, shown what the plan names first."""
        first, *others = self.insights
        return [(Arm(m, first), Arm(m, i)) for m in self.models for i in others]

    def settings_of(self, planned: AblationRun, settings: RunSettings) -> RunSettings:
        arm, limited = planned.arm, plan_toml.applied(self.limits, LIMITS, settings)
        return replace(limited, models=(arm.model,), profile_visibility=arm.insight, seed=planned.seed, alone=True)


def read(file: Path) -> AblationPlan:
    """Return the plan in a file. Raises UsageFault with what is wrong with it."""
    values = plan_toml.read(file, SHAPE, HINT)
    minutes = json_codec.from_json(float, values["minutes"])
    limits = plan_toml.limits_of(values | {"minutes": minutes}, LIMITS)
    own_fields = {name: value for name, value in values.items() if name not in LIMITS}
    insights = json_codec.from_json(tuple[ProfileVisibility, ...], values["insights"])
    return plan_toml.plan(AblationPlan, own_fields | {"insights": insights}, limits)


def _metric(value: object) -> str:
    return "" if value in METRICS else f"is none of {', '.join(METRICS)}"


SHAPE: Shape = {
    "metric": _metric,
    "targets": TEXTS,
    "insights": different(f"ones of {', '.join(ProfileVisibility)}", lambda x: x in list(ProfileVisibility)),
    "models": TEXTS,
    "seeds": SEEDS,
    **plan_toml.shape_of(LIMITS),
}
