"""Whose code a candidate is. What is not the embedded moves' own is foreign: it is built and judged in the box alone.

What a move makes of foreign code is foreign, too: `author` says so, and `foreign` looks at all that it was made of.
"""

from collections.abc import Mapping

from pgo_agent.agent.run import incumbent
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.record.candidate import Candidate

GIVEN = "given"  # not `embedded`: without a sandbox it is refused
EMBEDDED = "embedded"  # by the moves of this project
_ONTO = f"{EMBEDDED}, onto "


def foreign(ctx: Context, candidate: Candidate) -> bool:
    """Whether anybody but the embedded moves wrote a candidate, or what it was made of."""
    return _foreign(candidate, {c.id: c for c in ctx.store.candidates(ctx.run.id)})


def _foreign(candidate: Candidate, known: Mapping[str, Candidate]) -> bool:
    at, left = candidate, dict(known)
    while at.author == EMBEDDED and at.parent != incumbent.SHIPPED:
        if (parent := left.pop(at.parent, None)) is None:
            return True  # of nobody knows what
        at = parent
    return at.author != EMBEDDED


def author(ctx: Context, *parts: str) -> str:
    """Who is told to have written what a move makes of candidates, or of the kernel as shipped."""
    made_of = [ctx.store.candidate(ctx.run.id, name) for name in parts if name != incumbent.SHIPPED]
    theirs = next((c.author for c in made_of if foreign(ctx, c)), None)
    if theirs is None:
        return EMBEDDED
    return theirs if theirs.startswith(_ONTO) else f"{_ONTO}{theirs}"
