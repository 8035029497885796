"""The turns of candidates that are judged without a GPU: while one is interpreted, held-out cases of another are built.

`measure.py` judges one candidate; the caller settles the verdicts.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from pgo_agent.agent.evaluation import measure
from pgo_agent.agent.evaluation.schedule import Outcome
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.record.candidate import Candidate
from pgo_agent.sandbox.threads import as_they_end

AT_ONCE = 2


def in_turns(
    ctx: Context, waiting: Sequence[Candidate], more: Callable[[], bool], begun: set[str]
) -> Iterator[tuple[str, Outcome]]:
    """Yield (candidate, outcome) as they come, as `schedule.outcomes` does on GPUs."""
    work = {c.id: partial(_judged, ctx, c.id, begun) for c in waiting}
    for name, outcome in as_they_end(work, more, lambda: AT_ONCE):
        begun.discard(name)
        if outcome is not None:
            yield name, outcome


def _judged(ctx: Context, name: str, begun: set[str]) -> Outcome | None:
    """Judge a candidate; None if it was vetoed. From here on a veto comes too late."""
    begun.add(name)
    candidate = ctx.store.candidate(ctx.run.id, name)
    if candidate.verdict is not None:
        return None
    judged, seconds = measure.in_interpreter(ctx, candidate)
    return judged, None, seconds
