"""`pgo-agent eval ablation`: makes the runs of a plan, one after another, and writes what each came to as JSON lines.

Relies on `evals/runner/` for the runs and their file. Here stands what a result of an ablation is.
"""

from dataclasses import dataclass

from pgo_agent.agent.exit_codes import Exit
from pgo_agent.agent.run import judge_choice
from pgo_agent.agent.run.events import Emit
from pgo_agent.agent.run.record.run import Run
from pgo_agent.agent.run.record.run_summary import MeasuredRun
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.agent.version import commit_of
from pgo_agent.evals.ablation.plan import AblationPlan, AblationRun
from pgo_agent.evals.ablation.scores import score
from pgo_agent.evals.runner import results as planned
from pgo_agent.evals.runner import run as running
from pgo_agent.sandbox import json_codec
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.json_codec import JsonObject


@dataclass(frozen=True)
class Results(planned.Results[AblationRun]):
    """The file of results of one ablation."""

    plan: AblationPlan
    kind: str = "an ablation"

    def scores(self) -> dict[AblationRun, float]:
        """Return the scores of the runs that ended by themselves."""
        ended = {w: self.ended(w) for w in self.plan.runs}
        counted = {w: line["score"] for w, line in ended.items() if line and not line["truncated"]}
        return {w: json_codec.from_json(float, score) for w, score in counted.items()}

    def commits(self) -> dict[AblationRun, str]:
        """Return which pgo-agent made each run that ended."""
        return {w: str(line.get("commit", "")) for w in self.plan.runs if (line := self.ended(w))}


def check(results: Results, settings: RunSettings) -> None:
    """Raise UsageFault for results of another plan, and for a metric of times without a GPU."""
    gpu, _ = judge_choice.choose(settings)
    if gpu is not None:
        gpu.close()
    if gpu is None and results.plan.metric != "right":
        problem = f"the metric {results.plan.metric} needs a GPU, and none is used here"
        raise UsageFault(problem, "plan for `right`, or take a machine with one")
    results.lines  # noqa: B018 (it is read, and refused, here)


def run(results: Results, settings: RunSettings, store: Store, emit: Emit) -> Exit:
    """Make every run that has no result yet. Gives WAITING when a model's reply is not there yet, else DONE.

    Raises what runs raise.
    """
    return running.run(results, settings, store, emit, lambda opened, ended, _: _as_values(results.plan, opened, ended))


def _as_values(plan: AblationPlan, store: Store, run: Run) -> JsonObject:
    candidates, spent = store.candidates(run.id), store.spent(run.id)
    judged = [c for c in candidates if c.verdict is not None]
    return {
        "score": score(store, run, plan.metric),
        "state": run.state,
        "truncated": run.seconds > 60 * plan.limits.minutes,
        "judged": len(judged),
        "accepted": [c.move for c in judged if c.verdict == "accepted"],
        "seconds": round(run.seconds, 1),
        "tokens": int(spent["tokens"]),
        "money": spent["money"],
        "gpu_seconds": run.gpu_seconds,
        "environment": run.summary.environment.as_json() if isinstance(run.summary, MeasuredRun) else None,
        "commit": commit_of(),
    }
