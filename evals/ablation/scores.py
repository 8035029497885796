"""What a run is worth, by the metric of its plan: one number, from verdicts in the record and from nothing else.

- `anytime`: the mean over the budget's candidates of the best gain so far over the kernel as shipped, as a logarithm:
  how soon a run finds what it finds. After its last candidate a run stays where it is. GPU only.
- `final`: the logarithm of the winner's speedup over the tuned baseline in the run's last session; 0 without a winner,
  for the tuned baseline was there before. GPU only.
- `best`: the logarithm of the best accepted ratio to the tuned baseline after the last generation; 0 without one. Of
  runs that generations limit.
- `right`: the share of candidates with nothing wrong, of those that were judged. On a CPU the interpreter judges.
"""

import math
from collections.abc import Sequence
from typing import Protocol

from pgo_agent.agent.exit_codes import FAULTY
from pgo_agent.agent.run.record.candidate import Candidate
from pgo_agent.agent.run.record.run import Run
from pgo_agent.agent.run.record.run_summary import MeasuredRun
from pgo_agent.agent.run.record.store import Store
from pgo_agent.evals.ablation import outcome
from pgo_agent.evals.ablation.plan import BEST
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.gate.verdict import Verdict


class Judgement(Protocol):
    """A candidate, as far as gains go."""

    @property
    def id(self) -> str: ...

    @property
    def verdict(self) -> str | None: ...

    @property
    def speedup(self) -> float | None: ...

    @property
    def against(self) -> str | None:
        """What it was measured against: a candidate or `shipped`."""


def score(store: Store, run: Run, metric: str) -> float:
    """Return a run's score. Raises UsageFault for a metric of times where nothing was timed."""
    candidates = store.candidates(run.id)
    if metric == "right":
        return right(candidates)
    if metric == BEST:
        return math.log(outcome.generations(store, run)[-1].best)
    if not isinstance(run.summary, MeasuredRun):
        raise UsageFault(f"run {run.id} measured nothing, so it has no {metric}", "plan for `right`, or take a GPU")
    return final(run) if metric == "final" else anytime(candidates, run.settings.candidates)


def right(candidates: Sequence[Candidate]) -> float:
    """Return the share of candidates with nothing wrong, 0 to 1; 0 where nothing was judged."""
    judged = [c for c in candidates if c.verdict is not None]
    return sum(c.verdict not in FAULTY for c in judged) / len(judged) if judged else 0.0


def final(run: Run) -> float:
    against = run.summary.against.get("tuned") if isinstance(run.summary, MeasuredRun) else None
    return math.log(against[1]) if against else 0.0


def anytime(candidates: Sequence[Judgement], budget: int) -> float:
    """Return the mean best gain over the budget. `candidates`: in the order in which they were proposed."""
    gains = bests(candidates[:budget])
    return sum(gains + gains[-1:] * (budget - len(gains))) / budget


def bests(candidates: Sequence[Judgement]) -> list[float]:
    """Return, after each candidate, the logarithm of the best gain so far over the kernel as shipped."""
    gains: dict[str | None, float] = {}
    best, result = 0.0, []
    for c in candidates:
        best = max(best, _gained(c, gains))
        result.append(best)
    return result


def _gained(c: Judgement, gains: dict[str | None, float]) -> float:
    """Logarithm of an accepted candidate's gain over the kernel as shipped: its own and that of what it replaced."""
    if c.verdict != Verdict.ACCEPTED or not c.speedup:
        return 0.0
    gains[c.id] = gains.get(c.against, 0.0) + math.log(c.speedup)
    return gains[c.id]
