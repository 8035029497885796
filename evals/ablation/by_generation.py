"""What came of an ablation with models, for a terminal and as Markdown: each arm after each generation, what that took,
and the paired differences with their intervals.

Fixed before the data. All against none after the last generation is what the plan asks; every other difference is told
beside it, uncorrected, for who wants to look further. Ratios are geometric means in which each kernel weighs the same.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pgo_agent.evals.ablation.compare import Difference, differences
from pgo_agent.evals.ablation.plan import LENDER, AblationPlan, AblationRun, Arm
from pgo_agent.evals.ablation.run import Results
from pgo_agent.sandbox import json_codec
from pgo_agent.sandbox.json_codec import Record

COLUMNS = ("valid first tries", "GPU s", "tokens", "at 1.05x: runs", "GPU s", "tokens", "at best: GPU s", "tokens")


@dataclass(frozen=True)
class ArmOutcome(Record):
    """One arm; each figure is None where no run of it has one."""

    arm: str
    runs: int
    after: tuple[float | None, ...]  # ratio to the tuned baseline, for each generation
    valid: float | None  # share of first tries with nothing wrong
    gpu_seconds: float | None  # of judging, a run
    tokens: float | None  # a run
    near: int  # runs that came to 1.05x
    near_gpu_seconds: float | None  # the middle of those runs
    near_tokens: float | None
    best_gpu_seconds: float | None  # the middle of the runs that won anything
    best_tokens: float | None


def arms(results: Results) -> list[ArmOutcome]:
    """Return what came of each arm, in the order of the plan."""
    every = dict.fromkeys(w.arm for w in results.plan.runs if w.arm != LENDER)
    return [_outcome(results, arm) for arm in every]


def by_generation(results: Results) -> list[list[Difference]]:
    """Return the differences of arms after each generation."""
    scores = (results.after(n) for n in _generations(results.plan))
    return [differences(results.plan, s, results.commits()) for s in scores]


def cells(results: Results, arm: ArmOutcome) -> list[str]:
    """Return what a table says of an arm."""
    ratios = [_number(x, "{:.4f}x") for x in arm.after]
    near = [str(arm.near), _number(arm.near_gpu_seconds), _number(arm.near_tokens)]
    best = [_number(arm.best_gpu_seconds), _number(arm.best_tokens)]
    whole = [_number(arm.valid, "{:.0%}"), _number(arm.gpu_seconds), _number(arm.tokens)]
    return [arm.arm, str(arm.runs), *ratios, *whole, *near, *best]


def columns(results: Results) -> list[str]:
    return ["arm", "runs", *(f"after {n}" for n in _generations(results.plan)), *COLUMNS]


def said(d: Difference) -> str:
    """Return a difference as a sentence."""
    return f"{d.arm.insight} against {d.base.insight}: {figures(d)}"


def figures(d: Difference) -> str:
    """Return the numbers of a difference: the ratio with its interval, and the kernels that it is of."""
    by_target = ", ".join(f"{Path(t).stem} {math.exp(x):.4f}x" for t, x in d.targets.items())
    interval = f"{math.exp(d.mid):.4f}x [{math.exp(d.low):.4f}x, {math.exp(d.high):.4f}x]"
    return f"{interval} ({d.pairs} pairs; {by_target})"


def lines(results: Results) -> Iterator[str]:
    """Yield the differences after each generation, the last one first, and what the rows lack."""
    for n, listed in reversed(list(zip(_generations(results.plan), by_generation(results), strict=True))):
        yield from (f"after generation {n}: {said(d)}" for d in listed)
    yield from _lacks(results)


def markdown(results: Results) -> str:
    """Return a section for a page: the table of arms, and a line for each difference."""
    head = columns(results)
    table = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    table += ["| " + " | ".join(cells(results, a)) + " |" for a in arms(results)]
    return "\n".join(table) + "\n\n" + "".join(f"- {line}\n" for line in lines(results))


def _outcome(results: Results, arm: Arm) -> ArmOutcome:
    scores = results.scores()
    runs = [w for w in results.plan.runs if w.arm == arm and w in scores]
    rows = [results.ended(w) or {} for w in runs]
    after = [{w: s for w, s in results.after(n).items() if w.arm == arm} for n in _generations(results.plan)]
    firsts = [json_codec.from_json(dict[str, int], r["first_try"]) for r in rows if "first_try" in r]
    last = [gs[-1] for w in runs if (gs := results.generations(w))]
    near, best = ([r[key] for r in rows if r.get(key)] for key in ("to_near", "to_best"))
    return ArmOutcome(
        arm=str(arm.insight) if len(results.plan.models) == 1 else str(arm),
        runs=len(runs),
        after=tuple(_ratio(results.plan, scores) for scores in after),
        valid=sum(f["valid"] for f in firsts) / sum(f["tries"] for f in firsts) if firsts else None,
        gpu_seconds=statistics.fmean(g.gpu_seconds for g in last) if last else None,
        tokens=statistics.fmean(g.tokens for g in last) if last else None,
        near=len(near),
        near_gpu_seconds=_middle(near, "gpu_seconds"),
        near_tokens=_middle(near, "tokens"),
        best_gpu_seconds=_middle(best, "gpu_seconds"),
        best_tokens=_middle(best, "tokens"),
    )


def _ratio(plan: AblationPlan, scores: dict[AblationRun, float]) -> float | None:
    of_targets = [[s for w, s in scores.items() if w.target == t] for t in plan.targets]
    means = [statistics.fmean(s) for s in of_targets if s]
    return math.exp(statistics.fmean(means)) if means else None


def _middle(taken: Sequence[Any], what: str) -> float | None:
    return statistics.median(float(t[what]) for t in taken) if taken else None


def _lacks(results: Results) -> Iterator[str]:
    """What the rows say against them: prompts that lost a section, profiles that lack a pass."""
    for w in results.plan.runs:
        row = results.ended(w) or {}
        if left := row.get("left_out"):
            yield f"the prompt of {row['run']} left out {left}"
        if missing := row.get("missing"):
            yield f"the profile of {w.target} lacks {missing}"


def _generations(plan: AblationPlan) -> range:
    return range(1, 1 + (plan.limits.generations or 0))


def _number(x: float | None, form: str = "{:.0f}") -> str:
    return "-" if x is None else form.format(x)
