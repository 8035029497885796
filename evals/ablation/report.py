"""What `pgo-agent eval ablation` prints: each arm's mean score, and the paired differences with their intervals."""

import json
import math
import statistics
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NotRequired, TypedDict

from pgo_agent.agent.exit_codes import Exit
from pgo_agent.agent.views import summary as display
from pgo_agent.evals.ablation import beside, by_generation, estimate
from pgo_agent.evals.ablation.beside import Beside
from pgo_agent.evals.ablation.by_generation import ArmOutcome
from pgo_agent.evals.ablation.compare import Difference, apart, differences
from pgo_agent.evals.ablation.estimate import KernelCost
from pgo_agent.evals.ablation.plan import BEST, LENDER, AblationPlan
from pgo_agent.evals.ablation.run import Results
from pgo_agent.evals.runner import waiting
from pgo_agent.evals.runner.waiting import Waits
from rich.console import Console
from rich.table import Table

COMPLETED, ESTIMATED = "ablation.completed", "ablation.estimated"


class ArmMean(TypedDict):
    runs: int
    mean: float | None


class Compared(TypedDict):
    """An arm's score less that of the arm it is compared with."""

    base: str
    arm: str
    low: float
    mid: float
    high: float
    targets: dict[str, float]  # mean difference of each
    pairs: int


class Summary(TypedDict):
    """What is counted over the runs of a plan."""

    metric: str
    plan: str  # digest
    arms: dict[str, ArmMean]
    differences: list[Compared]
    apart: int  # pairs that two versions of pgo-agent made
    truncated: int
    missing: int
    waiting: list[Waits]
    outcomes: NotRequired[list[ArmOutcome]]  # of the metric "best": this, and differences after each generation
    generations: NotRequired[list[list[Compared]]]
    beside: NotRequired[list[Compared]]  # with --beside: each arm less itself in earlier rows


class Estimated(TypedDict):
    """What the runs of a plan will take of a GPU."""

    costs: list[KernelCost]


def summary(results: Results, earlier: Results | None = None) -> dict[str, Any]:
    """Return everything that is counted, as plain values."""
    plan, scores, commits = results.plan, results.scores(), results.commits()
    arms = dict.fromkeys(w.arm for w in plan.runs if w.arm != LENDER)
    means = {str(a): [s for w, s in scores.items() if w.arm == a] for a in arms}
    ended = [line for w in plan.runs if w.arm != LENDER and (line := results.ended(w))]
    generations = [[_as_values(d) for d in listed] for listed in by_generation.by_generation(results)]
    outcomes = [a.as_json() for a in by_generation.arms(results)] if plan.metric == BEST else []
    controlled = {"outcomes": outcomes, "generations": generations} if plan.metric == BEST else {}
    return {
        "metric": plan.metric,
        "plan": plan.digest,
        "arms": {a: {"runs": len(s), "mean": statistics.mean(s) if s else None} for a, s in means.items()},
        "differences": [_as_values(d) for d in differences(plan, scores, commits)],
        "apart": apart(plan, scores, commits),
        "truncated": sum(bool(line["truncated"]) for line in ended),
        "missing": len(results.missing),
        "waiting": [w.as_json() for w in results.waits()],
        **controlled,
        **({"beside": [_beside(b) for b in beside.differences(results, earlier)]} if earlier else {}),
    }


def _as_values(d: Difference) -> dict[str, Any]:
    return asdict(d) | {"base": str(d.base), "arm": str(d.arm)}


def _beside(b: Beside) -> dict[str, Any]:
    of = b.difference
    return _as_values(of) | {"base": f"{of.base} of {b.earlier}", "arm": f"{of.arm} of {b.later}"}


def finish(results: Results, json_lines: bool, code: Exit, earlier: Results | None = None) -> Exit:
    """End the feed of events with what was counted; return the code."""
    if json_lines:
        print(json.dumps({"type": COMPLETED} | summary(results, earlier)), flush=True)
    return code


def estimated(plan: AblationPlan, json_lines: bool) -> Exit:
    """Tell what the runs of a plan will take of a GPU."""
    costs = estimate.of(plan)
    if json_lines:
        print(json.dumps({"type": ESTIMATED, "costs": [c.as_json() for c in costs]}), flush=True)
        return Exit.DONE
    out = display.output()
    out.print(estimate.table(costs))
    out.print(estimate.told(costs), markup=False, soft_wrap=True)
    return Exit.DONE


def show(results: Results, earlier: Results | None = None) -> None:
    """Print what was counted; `earlier`: rows of another pgo-agent to tell it beside."""
    out, counted = display.output(), summary(results)
    (_show_generations if results.plan.metric == BEST else _show_means)(results, counted, out)
    for line in beside.lines(results, earlier) if earlier else ():
        out.print(line, markup=False, soft_wrap=True)
    if counted["truncated"]:
        out.print(f"{counted['truncated']} runs were ended by their minutes and are left out")
    if counted["apart"]:
        out.print(f"{counted['apart']} pairs are left out: their runs are of two commits of pgo-agent")
    waiting.show(results.waits(), out)
    if counted["missing"]:
        out.print(f"{counted['missing']} runs have no result yet: the same command goes on")
    out.print(f"every run: {results.file}", markup=False, soft_wrap=True)


def _show_means(results: Results, counted: Mapping[str, Any], out: Console) -> None:
    plan = results.plan
    arms = Table("arm", "runs", f"mean {plan.metric}", title=f"Targets: {len(plan.targets)}, seeds: {len(plan.seeds)}")
    for name, arm in counted["arms"].items():
        arms.add_row(name, str(arm["runs"]), "" if arm["mean"] is None else _value(plan, arm["mean"]))
    out.print(arms)
    for d in differences(plan, results.scores(), results.commits()):
        by_target = ", ".join(f"{t} {_difference(plan, x)}" for t, x in d.targets.items())
        interval = f"{_difference(plan, d.mid)} [{_difference(plan, d.low)}, {_difference(plan, d.high)}]"
        out.print(f"{d.arm} against {d.base}: {interval} ({d.pairs} pairs; {by_target})", markup=False, soft_wrap=True)


def _show_generations(results: Results, _: Mapping[str, Any], out: Console) -> None:
    table = Table(*by_generation.columns(results), title="Best accepted ratio to tuned", title_justify="left")
    for arm in by_generation.arms(results):
        table.add_row(*by_generation.cells(results, arm))
    out.print(table)
    for line in by_generation.lines(results):
        out.print(line, markup=False, soft_wrap=True)


def _value(plan: AblationPlan, score: float) -> str:
    return f"{score:.3f}" if plan.metric == "right" else f"{math.exp(score):.4f}x"


def _difference(plan: AblationPlan, difference: float) -> str:
    return f"{difference:+.3f}" if plan.metric == "right" else f"{math.exp(difference):.4f}x"
