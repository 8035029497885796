"""The plan of a nightly: a TOML file, fixed before the first run. Its hash stands in the file of rows.

Relies on `evals/runner/plan_toml.py`, which reads it. Budgets of models may be left out, for where none is asked; all
else has no default: a reader of a row finds all of it in one place. A plan may say that runs time the compiled
reference, too, and which suite its kernels are.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pgo_agent.agent.llm.models import EMBEDDED
from pgo_agent.agent.llm.models.types import OPTIMIZER, ROLES
from pgo_agent.agent.run.settings import BUDGETS, RunSettings
from pgo_agent.evals.runner import plan_toml
from pgo_agent.evals.runner.plan_toml import SEEDS, TEXTS, Shape
from pgo_agent.sandbox import json_codec
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.json_codec import JsonObject

HINT = "fix the plan; `pgo-agent eval nightly --help` shows one"
COMPILE = "compile_reference"  # a setting of a run that a plan may name
LIMITS = ("patience", *BUDGETS)  # settings of a run that a plan must name
OF_MODELS = [name for name, budget in BUDGETS.items() if budget.of_models]  # but for these


@dataclass(frozen=True)
class NightlyRun:
    """One run."""

    target: str
    optimizer: str  # as the plan names it
    seed: int

    @property
    def named(self) -> dict[str, str | int]:
        return {"target": self.target, "optimizer": self.optimizer, "seed": self.seed}


@dataclass(frozen=True)
class NightlyPlan:
    targets: tuple[str, ...]  # kernel files, or names of kernels that ship
    optimizers: tuple[str, ...]  # as `--model` takes them; `{kernel}` in one stands for the target's name
    seeds: tuple[int, ...]
    limits: RunSettings  # of each run: what LIMITS and COMPILE name
    suite: str = ""  # of the kernels: rows of a suite stand in a section of their own

    @property
    def digest(self) -> str:
        return plan_toml.digest(self.values)

    @property
    def values(self) -> JsonObject:
        lists: JsonObject = {"targets": self.targets, "optimizers": self.optimizers, "seeds": self.seeds}
        also = {COMPILE: self.limits.compile_reference, "suite": self.suite}
        return lists | self.budget | {name: value for name, value in also.items() if value}

    @property
    def budget(self) -> dict[str, float | None]:
        return plan_toml.values_of(self.limits, LIMITS)

    @property
    def gpu_limit(self) -> float:
        """Seconds of the GPU that a run may hold it."""
        return math.inf if self.limits.gpu_seconds is None else self.limits.gpu_seconds

    @property
    def runs(self) -> Sequence[NightlyRun]:
        """Seed by seed: a night that is cut short has something of every target and optimizer."""
        return [NightlyRun(t, o, s) for s in self.seeds for t in self.targets for o in self.optimizers]

    def settings_of(self, planned: NightlyRun, settings: RunSettings) -> RunSettings:
        """Return a run's settings: it learns from no other run; roles without a model in the plan are embedded."""
        roles = dict.fromkeys(ROLES, EMBEDDED) | {OPTIMIZER: model(planned.optimizer, planned.target)}
        models = tuple(f"{role}={name}" for role, name in roles.items())
        limited = plan_toml.applied(self.limits, (*LIMITS, COMPILE), settings)
        return replace(limited, models=models, seed=planned.seed, alone=True)


def model(optimizer: str, target: str) -> str:
    """Return what `--model` takes for an optimizer of the plan and a target: a recording is of one kernel alone."""
    return optimizer.replace("{kernel}", Path(target).stem)


def read(file: Path) -> NightlyPlan:
    """Return the plan in a file. Raises UsageFault with what is wrong with it."""
    values = plan_toml.read(file, SHAPE, HINT, (*OF_MODELS, COMPILE, "suite"))
    names = [Path(t).stem for t in json_codec.from_json(tuple[str, ...], values["targets"])]
    if twice := sorted({n for n in names if names.count(n) > 1}):
        raise UsageFault(f"{file}: two targets are called {', '.join(twice)}", "rows are told apart by that name")
    limits = plan_toml.limits_of(values, (*LIMITS, COMPILE))
    return plan_toml.plan(NightlyPlan, values, limits)


SHAPE: Shape = {
    "targets": TEXTS,
    "optimizers": TEXTS,
    "seeds": SEEDS,
    **plan_toml.shape_of((*LIMITS, COMPILE)),
    "suite": plan_toml.text,
}
