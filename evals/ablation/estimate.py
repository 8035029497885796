"""What an ablation with models will take of a GPU, before anything is run: told by `--estimate`.

It rests on recorded runs of the same kernels: those of an ablation, where the kernel was in one, else all. The GPU
seconds of a run are shared by its candidates: of other runs they have baseline, profile and last session in them, but
most of their candidates end early, where those of a model are timed twice. A kernel without a record counts as the
middle of those with one, and says so. Nothing here is measured now.
"""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pgo_agent.agent.profile.pass_runner import FIRST
from pgo_agent.agent.run.settings import default_width
from pgo_agent.evals.ablation.plan import LENDER, AblationPlan
from pgo_agent.evals.nightly import load
from pgo_agent.evals.nightly.row import Row
from pgo_agent.evals.runner.folders import RESULTS
from pgo_agent.evals.runner.results import ENDED, parsed
from pgo_agent.sandbox import json_codec
from pgo_agent.sandbox.json_codec import Record
from rich.table import Table

FIRST_CANDIDATE = 10.0  # GPU seconds, where no run is recorded at all: a guess


@dataclass(frozen=True)
class KernelCost(Record):
    """GPU seconds that one target of a plan will take."""

    target: str
    candidate: float  # for one candidate, its run's share of all else included
    lender: float  # for the profile of the kernel as shipped, and a candidate's share for each of its generations
    cells: int
    candidates: int  # of a cell, at most
    runs: int  # recorded runs that it rests on; 0: on those of the other targets

    @property
    def all(self) -> float:
        return self.lender + self.cells * self.candidates * self.candidate


def of(plan: AblationPlan, rows: Sequence[Row] | None = None) -> list[KernelCost]:
    """Return what each target will take. `rows`: recorded runs; None: those that ship."""
    known = load.files(_recorded()).rows if rows is None else rows
    found = {t: list(_of_kernel(known, t)) for t in plan.targets}
    cases = {t: max((n for _, n in runs), default=1) for t, runs in found.items()}
    if rows is None:
        found |= {t: [(c, cases[t]) for c in own] for t, own in _of_cells(plan.targets).items()}
    each = {t: statistics.median(c for c, _ in runs) for t, runs in found.items() if runs}
    usual = statistics.median(each.values()) if each else FIRST_CANDIDATE
    cells = sum(w.arm != LENDER for w in plan.runs) // len(plan.targets)
    return [_cost(plan, t, runs, each.get(t, usual), cells) for t, runs in found.items()]


def _recorded() -> list[Path]:
    return [*sorted(RESULTS.glob("*-h[12]00.jsonl")), *sorted(RESULTS.parent.glob("field/results/h100*.jsonl"))]


def _cost(
    plan: AblationPlan, target: str, runs: Sequence[tuple[float, int]], candidate: float, cells: int
) -> KernelCost:
    cases = max((n for _, n in runs), default=1)
    lender = cases * sum(FIRST.values()) + 2 * candidate
    return KernelCost(target, candidate, lender, cells, _candidates(plan), len(runs))


def table(costs: Sequence[KernelCost]) -> Table:
    drawn = Table("target", "s a candidate", "by runs", "lender s", "cells", "candidates at most", "s in all")
    for c in costs:
        rests = str(c.runs or "none: the middle of the others")
        figures = (f"~{c.candidate:.0f}", rests, f"~{c.lender:.0f}", str(c.cells), str(c.cells * c.candidates))
        drawn.add_row(c.target, *figures, f"~{c.all:.0f}")
    return drawn


def told(costs: Sequence[KernelCost]) -> str:
    whole = sum(c.all for c in costs)
    return f"~{whole:.0f} s of a GPU at most ({whole / 3600:.1f} h), ~{whole / 8 / 60:.0f} min of eight; an estimate"


def _of_kernel(rows: Iterable[Row], target: str) -> Iterable[tuple[float, int]]:
    """GPU seconds of a candidate, and cases, of each recorded run of a kernel."""
    name = Path(target).stem
    for r in rows:
        if r.kernel == name and r.candidates and r.gpu_seconds and not r.failed:
            yield r.gpu_seconds / len(r.candidates), len(r.cases)


def _of_cells(targets: Sequence[str]) -> dict[str, list[float]]:
    """GPU seconds of a candidate of each recorded run of an ablation, by target."""
    found = dict[str, list[float]]()
    for path in sorted(RESULTS.glob("ablation-model*.jsonl")):
        for line in filter(None, map(parsed, path.read_text(encoding="utf-8").splitlines())):
            if line["what"] == ENDED and line["target"] in targets and line["judged"] and line["model"] != LENDER.model:
                spent = json_codec.from_json(float, line["gpu_seconds"])
                found.setdefault(str(line["target"]), []).append(spent / json_codec.from_json(int, line["judged"]))
    return found


def _candidates(plan: AblationPlan) -> int:
    most = plan.limits.candidates
    width = plan.limits.width or default_width(1)
    return most if plan.limits.generations is None else min(most, width * plan.limits.generations)
