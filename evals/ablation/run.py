"""`pgo-agent eval ablation`: makes the runs of a plan, one after another, and writes what each came to as JSON lines.

Relies on `evals/runner/` for the runs and their file, on `outcome.py` for what a row says. Controlled runs take over
the baseline of their target from its lender: all are made in one workspace.
"""

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path

from pgo_agent.agent.exit_codes import Exit
from pgo_agent.agent.llm import models
from pgo_agent.agent.run import judge_choice
from pgo_agent.agent.run.events import Emit
from pgo_agent.agent.run.record.run import Run
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.evals.ablation import outcome
from pgo_agent.evals.ablation.outcome import Generation
from pgo_agent.evals.ablation.plan import LENDER, RELAY, AblationPlan, AblationRun, Insight, of_values
from pgo_agent.evals.ablation.scores import score
from pgo_agent.evals.runner import results as planned
from pgo_agent.evals.runner import run as running
from pgo_agent.evals.runner import waiting
from pgo_agent.evals.runner.waiting import Waits
from pgo_agent.sandbox import json_codec
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.profile.kernel_profile import PassName


@dataclass(frozen=True)
class Results(planned.Results[AblationRun]):
    """The file of results of one ablation."""

    plan: AblationPlan
    kind: str = "an ablation"

    def settings_of(self, planned: AblationRun, settings: RunSettings) -> RunSettings:
        """Return the settings of a run, with the runs that it takes a baseline and a profile from."""
        asked = super().settings_of(planned, settings)
        if not planned.controlled:
            return asked
        other = self.plan.other(planned.target) if planned.arm.insight is Insight.ANOTHER else None
        self._check_profile(planned)
        lent = replace(asked, baseline_of=self._lender(planned.target))
        return replace(lent, profile_of=self._lender(other)) if other else lent

    def _check_profile(self, planned: AblationRun) -> None:
        """Raise UsageFault where the profile of a target lacks all that an arm is told: it would be told nothing."""
        lender = self.ended(self.plan.lender(planned.target)) or {}
        missing = json_codec.from_json(dict[str, dict[str, str]], lender["missing"])
        needed = {Insight.COUNTERS: PassName.COUNTERS, Insight.BOUND: outcome.ROOF}.get(planned.arm.insight)
        for case, why in ((c, passes[needed]) for c, passes in missing.items() if needed in passes):
            problem = f"'{planned.arm.insight}' cannot be told of {planned.target}: {case} has no {needed}: {why}"
            raise UsageFault(problem, "see `docs/ablation.md`; with what is missing there, begin another file")

    def lacks(self, planned: AblationRun) -> list[AblationRun]:
        """Return the lenders of a run that have not ended."""
        if not planned.controlled:
            return []
        other = [self.plan.other(planned.target)] if planned.arm.insight is Insight.ANOTHER else []
        return [w for w in map(self.plan.lender, [planned.target, *other]) if self.ended(w) is None]

    def _lender(self, target: str) -> str:
        return str((self.ended(self.plan.lender(target)) or {})["run"])

    def scores(self) -> dict[AblationRun, float]:
        """Return the scores of the runs that ended by themselves."""
        ended = {w: self.ended(w) for w in self.plan.runs if w.arm != LENDER}
        counted = {w: line["score"] for w, line in ended.items() if line and not line["truncated"]}
        return {w: json_codec.from_json(float, score) for w, score in counted.items()}

    def after(self, generation: int) -> dict[AblationRun, float]:
        """Return what each run that ended by itself had come to after a generation: the logarithm of its best."""
        reached = {w: self.generations(w) for w in self.scores()}
        return {w: math.log(gs[generation - 1].best) for w, gs in reached.items() if len(gs) >= generation}

    def generations(self, planned: AblationRun) -> list[Generation]:
        lines = (self.ended(planned) or {}).get("generations", [])
        return [Generation.from_json(g) for g in json_codec.from_json(list[JsonObject], lines)]

    def waits(self) -> list[Waits]:
        """Return what runs wait for. What other processes were told of a model is found in the folders of questions."""
        known = {w.run for w in self.waiting}
        relayed = [w for w in self.missing if w.arm.model.startswith(RELAY)]
        folders = {self.begun(w): models.path(self.plan.model_of(w)) for w in relayed}
        asked = [waiting.asked(run, folder) for run, folder in folders.items() if run and run not in known]
        return [*self.waiting, *(w for w in asked if w.files)]

    def commits(self) -> dict[AblationRun, str]:
        """Return which pgo-agent made each run that ended."""
        return {w: str(line.get("commit", "")) for w in self.plan.runs if (line := self.ended(w))}


def opened(file: Path) -> Results:
    """Open rows by the plan that stands before them. Raises UsageFault where none does."""
    try:
        with file.open() as lines:
            head = json.loads(next(lines))
        return Results(file, of_values(head["plan"], str(file)))
    except (OSError, ValueError, KeyError, TypeError, StopIteration) as e:
        problem = f"{file} holds no rows of an ablation ({type(e).__name__}: {e})"
        raise UsageFault(problem, "give the file that an `eval ablation ... -o FILE` wrote") from e


def check(results: Results, settings: RunSettings) -> None:
    """Raise UsageFault for results of another plan, and for a metric of times without a GPU."""
    gpu, _ = judge_choice.choose(settings)
    if gpu is not None:
        gpu.close()
    if gpu is None and results.plan.metric != "right":
        problem = f"the metric {results.plan.metric} needs a GPU, and none is used here"
        raise UsageFault(problem, "plan for `right`, or take a machine with one")
    results.lines  # noqa: B018 (it is read, and refused, here)


def shared(results: Results, slurm: str | None) -> bool:
    """Return whether the runs share a baseline, and so a workspace. Raises UsageFault for those as jobs of Slurm."""
    if not any(w.controlled for w in results.plan.runs):
        return False
    if slurm:
        problem = "runs with a model share the baselines of one workspace, and jobs of Slurm have one each"
        raise UsageFault(problem, "leave out --slurm; --at-once makes runs side by side on one machine")
    return True


def run(results: Results, settings: RunSettings, store: Store, emit: Emit) -> Exit:
    """Make every run that has no result yet. Gives WAITING when a model's reply is not there yet, else DONE.

    Raises what runs raise.
    """

    def told(opened: Store, ended: Run, planned: AblationRun) -> JsonObject:
        return _as_values(results.plan, opened, ended, planned)

    return running.run(results, settings, store, emit, told)


def _as_values(plan: AblationPlan, store: Store, run: Run, planned: AblationRun) -> JsonObject:
    values = outcome.of(store, run, plan.limits.minutes)
    if planned.arm == LENDER:
        return values | outcome.of_lender(store, run)
    more = outcome.of_controlled(store, run) if planned.controlled else {}
    return {"score": score(store, run, plan.metric)} | values | more
