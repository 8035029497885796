"""The plan of an ablation: a TOML file that is fixed before the first run. Its hash stands in every result.

Relies on `evals/runner/plan_toml.py`, which reads it. What it leaves out has no default: whoever reads a result finds
all of it in one place.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from pgo_agent.agent.run.profile_visibility import Insight
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.evals.runner import plan_toml
from pgo_agent.evals.runner.plan_toml import SEEDS, TEXTS, Shape, different, number, whole

METRICS = ("anytime", "final", "right")  # see scores.py
HINT = "mend the plan; `pgo-agent eval ablation --help` shows one"


@dataclass(frozen=True, order=True)
class Arm:
    """What differs between runs of one target and seed."""

    model: str  # as `--model` takes it
    insight: Insight

    def __str__(self) -> str:
        return f"{self.model}, told {self.insight}"


@dataclass(frozen=True)
class Wanted:
    """One run."""

    target: str
    seed: int
    arm: Arm

    @property
    def named(self) -> dict[str, Any]:
        return {"target": self.target, "seed": self.seed, "model": self.arm.model, "insight": str(self.arm.insight)}


@dataclass(frozen=True)
class Plan:
    metric: str  # what is compared: one of METRICS
    targets: tuple[str, ...]  # kernel files, or names of kernels that ship
    insights: tuple[Insight, ...]  # the first one is what the others are compared with
    models: tuple[str, ...]
    seeds: tuple[int, ...]
    candidates: int  # of a run
    patience: int  # generations without a win before it ends
    minutes: float  # of a run: a run that is ended by them is left out, for builds of one arm may serve another

    @property
    def digest(self) -> str:
        return plan_toml.digest(self)

    @property
    def runs(self) -> list[Wanted]:
        """In the order in which they are made: arms of a target and seed stand together, and take turns to be first."""
        arms = [Arm(m, i) for m, i in product(self.models, self.insights)]
        return [
            Wanted(target, seed, arm)
            for target in self.targets
            for n, seed in enumerate(self.seeds)
            for arm in (*arms[n % len(arms) :], *arms[: n % len(arms)])
        ]

    def wishes(self, wanted: Wanted, wishes: RunSettings) -> RunSettings:
        budget = replace(wishes, candidates=self.candidates, patience=self.patience, minutes=self.minutes)
        return replace(budget, models=(wanted.arm.model,), insight=wanted.arm.insight, seed=wanted.seed, alone=True)


def read(file: Path) -> Plan:
    """The plan in a file. Raises UsageFault with what is wrong with it."""
    said = plan_toml.read(file, SHAPE, HINT)
    return Plan(**(said | {"insights": tuple(map(Insight, said["insights"])), "minutes": float(said["minutes"])}))


def _metric(said: object) -> str:
    return "" if said in METRICS else f"is none of {', '.join(METRICS)}"


SHAPE: Shape = {
    "metric": _metric,
    "targets": TEXTS,
    "insights": different(f"ones of {', '.join(Insight)}", lambda x: x in list(Insight)),
    "models": TEXTS,
    "seeds": SEEDS,
    "candidates": whole,
    "patience": whole,
    "minutes": number,
}


def pairs(arms: Sequence[Arm], insights: Sequence[Insight]) -> list[tuple[Arm, Arm]]:
    """Each arm with the one it is compared with: the same model, told what the plan names first."""
    return [(Arm(a.model, insights[0]), a) for a in arms if a.insight != insights[0]]
