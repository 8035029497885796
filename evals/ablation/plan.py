"""The plan of an ablation: a TOML file that is fixed before the first run. Its hash stands in every result.

Relies on `evals/runner/plan_toml.py`, which reads it. What it leaves out has no default, but a limit that is none then:
a reader of a result finds all of it in one place.

Runs with a model are controlled (`RunSettings.controlled`): the model alone proposes, and prompts differ in their
profile alone. They share the baseline of their target, which a run of its own takes before them: the lender.
"""

import hashlib
import json
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from itertools import combinations, product
from pathlib import Path

from pgo_agent.agent.llm.models import EMBEDDED
from pgo_agent.agent.run.settings import ProfileVisibility, RunSettings
from pgo_agent.evals.runner import plan_toml
from pgo_agent.evals.runner.plan_toml import SEEDS, TEXTS, Shape, different
from pgo_agent.sandbox import json_codec
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.json_codec import JsonObject

BEST = "best"
METRICS = ("anytime", "final", "right", BEST)  # see scores.py
LIMITS = (
    "candidates",
    "patience",
    "minutes",
)  # a run that its minutes end is left out: its builds may serve another arm
OPTIONAL = ("generations", "width", "prompt_tokens", "gpu_seconds")
HINT = "fix the plan; `pgo-agent eval ablation --help` shows one"
RELAY = "relay:"


class Insight(StrEnum):
    """What the optimizer is told of profiles."""

    NONE = "none"
    BOUND = "bound"
    COUNTERS = "counters"
    ALL = "all"
    ANOTHER = "another"  # all of the profile of the plan's next target: wrong on purpose


@dataclass(frozen=True, order=True)
class Arm:
    """What differs between runs of one target and seed."""

    model: str  # as `--model` takes it
    insight: Insight

    def __str__(self) -> str:
        return f"{self.model}, told {self.insight}"


LENDER = Arm("nobody", Insight.ALL)  # of a run that takes the baseline of a target, with the profile of it, for others


@dataclass(frozen=True)
class AblationRun:
    """One run."""

    target: str
    seed: int
    arm: Arm

    @property
    def named(self) -> dict[str, str | int]:
        return {"target": self.target, "seed": self.seed, "model": self.arm.model, "insight": str(self.arm.insight)}

    @property
    def controlled(self) -> bool:
        return self.arm.model not in (EMBEDDED, LENDER.model)


@dataclass(frozen=True)
class AblationPlan:
    metric: str  # what is compared: one of METRICS
    targets: tuple[str, ...]  # kernel files, or names of kernels that ship
    insights: tuple[Insight, ...]  # the first one is what the others are compared with
    models: tuple[str, ...]
    seeds: tuple[int, ...]
    limits: RunSettings  # of each run: what LIMITS and OPTIONAL name

    @property
    def digest(self) -> str:
        return plan_toml.digest(self.values)

    @property
    def values(self) -> JsonObject:
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "limits"}
        given = {name: x for name, x in plan_toml.values_of(self.limits, OPTIONAL).items() if x is not None}
        return values | plan_toml.values_of(self.limits, LIMITS) | given

    @property
    def runs(self) -> list[AblationRun]:
        """In the order in which they are made: lenders first; arms of a target and seed stand together, and take turns
        to be first."""
        arms = [Arm(m, i) for m, i in product(self.models, self.insights)]
        cells = [
            AblationRun(target, seed, arm)
            for target in self.targets
            for n, seed in enumerate(self.seeds)
            for arm in (*arms[n % len(arms) :], *arms[: n % len(arms)])
        ]
        return [*(self.lender(t) for t in self.targets if any(c.controlled for c in cells)), *cells]

    def lender(self, target: str) -> AblationRun:
        return AblationRun(target, 0, LENDER)

    def other(self, target: str) -> str:
        """Return the target whose profile is told in place of this one's: the next of the plan, the first of the
        last."""
        return self.targets[(self.targets.index(target) + 1) % len(self.targets)]

    @property
    def comparisons(self) -> list[tuple[Arm, Arm]]:
        """Each arm after the one it is compared with, of the same model: all pairs where the best is compared, else
        what the plan names first with each other."""
        first, *others = self.insights
        pairs = list(combinations(self.insights, 2)) if self.metric == BEST else [(first, i) for i in others]
        return [(Arm(m, a), Arm(m, b)) for m in self.models for a, b in pairs]

    def settings_of(self, planned: AblationRun, settings: RunSettings) -> RunSettings:
        """Return the settings of a run, but for the runs that it takes a baseline and a profile from."""
        limited = plan_toml.applied(self.limits, (*LIMITS, *OPTIONAL), settings)
        if planned.arm == LENDER:
            return replace(limited, models=(EMBEDDED,), generations=0, controlled=True, alone=True)
        asked = replace(limited, models=(self.model_of(planned),), seed=planned.seed, alone=True)
        asked = replace(asked, controlled=planned.controlled)
        return replace(asked, profile_visibility=ProfileVisibility(_shown(planned.arm.insight)))

    def model_of(self, planned: AblationRun) -> str:
        """Return the model as `--model` takes it. Each run has a folder of its own for its questions, whose name tells
        who answers nothing of the run."""
        if not planned.arm.model.startswith(RELAY):
            return planned.arm.model
        named = json.dumps([self.digest, planned.named], sort_keys=True)
        return f"{planned.arm.model}/{hashlib.sha256(named.encode()).hexdigest()[:10]}"


def _shown(insight: Insight) -> Insight:
    return Insight.ALL if insight is Insight.ANOTHER else insight


def read(file: Path) -> AblationPlan:
    """Return the plan in a file. Raises UsageFault with what is wrong with it."""
    return of_values(plan_toml.read(file, SHAPE, HINT, OPTIONAL), str(file))


def of_values(values: JsonObject, where: str) -> AblationPlan:
    """Return the plan of what a file says, or the head of results (`where`). Raises UsageFault."""
    values = {name: tuple(x) if isinstance(x, list) else x for name, x in values.items()}
    minutes = json_codec.from_json(float, values["minutes"])
    limits = plan_toml.limits_of(values | {"minutes": minutes}, (*LIMITS, *OPTIONAL))
    own_fields = {name: value for name, value in values.items() if name not in (*LIMITS, *OPTIONAL)}
    insights = json_codec.from_json(tuple[Insight, ...], values["insights"])
    plan = plan_toml.plan(AblationPlan, own_fields | {"insights": insights}, limits)
    if why := _problem(plan):
        raise UsageFault(f"{where}: {why}", HINT)
    return plan


def _problem(plan: AblationPlan) -> str:
    if Insight.ANOTHER in plan.insights and (EMBEDDED in plan.models or len(plan.targets) < 2):
        return "insights name another profile, which models alone are told, of a second target"
    if plan.metric == BEST and plan.limits.generations is None:
        return f"the metric {BEST} is taken after each generation, and nothing says how many there are"
    return ""


def _metric(value: object) -> str:
    return "" if value in METRICS else f"is none of {', '.join(METRICS)}"


SHAPE: Shape = {
    "metric": _metric,
    "targets": TEXTS,
    "insights": different(f"ones of {', '.join(Insight)}", lambda x: x in list(Insight)),
    "models": TEXTS,
    "seeds": SEEDS,
    **plan_toml.shape_of((*LIMITS, *OPTIONAL)),
}
