"""Compares an ablation with an earlier one: the same arms, of the same kernels and seeds, made by another pgo-agent.

Whatever changed between the two is in the difference: prompts, the gate, the host. So it is told beside what a plan
asks, with both commits, and never instead. Pairs and intervals are those of `compare.py`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from pgo_agent.evals.ablation.by_generation import figures
from pgo_agent.evals.ablation.compare import Difference, between
from pgo_agent.evals.ablation.plan import LENDER
from pgo_agent.evals.ablation.run import Results
from pgo_agent.sandbox.errors import UsageFault


@dataclass(frozen=True)
class Beside:
    """A later arm less the same arm of the earlier rows."""

    difference: Difference
    earlier: str  # commits that made the runs
    later: str

    def __str__(self) -> str:
        d = self.difference
        arms = f"{d.arm.insight} of {self.later} against {d.base.insight} of {self.earlier}"
        return f"after the last generation, beside earlier runs: {arms}: {figures(d)}"


def differences(later: Results, earlier: Results) -> list[Beside]:
    """Return a difference for each arm that both have runs of. Raises UsageFault where their scores differ in kind."""
    if later.plan.metric != earlier.plan.metric:
        problem = f"{earlier.file} is of the metric {earlier.plan.metric}, this plan of {later.plan.metric}"
        raise UsageFault(problem, "compare rows of one metric")
    found = between(later.plan, earlier.scores(), later.scores())
    return [Beside(d, _commits(earlier), _commits(later)) for d in found]


def lines(later: Results, earlier: Results) -> Iterator[str]:
    """Yield each difference as a sentence, or that there is none."""
    found = differences(later, earlier)
    yield from map(str, found)
    if not found:
        yield f"{earlier.file.name} has no run of the same kernel, seed and arm"


def _commits(results: Results) -> str:
    made = {commit[:8] for w, commit in results.commits().items() if w.arm != LENDER}
    return ", ".join(sorted(made))
