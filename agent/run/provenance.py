"""Who wrote the code of a candidate. All but the embedded moves are untrusted: such code runs in the box alone.

What a move makes of untrusted code is untrusted, too: `author` names its writer, and `untrusted` checks all ancestors.
"""

from collections.abc import Mapping

from pgo_agent.agent.run import incumbent
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.record.candidate import Candidate

GIVEN = "given"  # not `embedded`: without a sandbox it is refused
EMBEDDED = "embedded"  # by the moves of this project
_ONTO = f"{EMBEDDED}, onto "


def untrusted(ctx: Context, candidate: Candidate) -> bool:
    """Whether anybody but the embedded moves wrote a candidate or one of its ancestors."""
    return _untrusted(candidate, {c.id: c for c in ctx.store.candidates(ctx.run.id)})


def _untrusted(candidate: Candidate, by_id: Mapping[str, Candidate]) -> bool:
    at, passed = candidate, set[str]()
    while at.author == EMBEDDED and at.parent != incumbent.SHIPPED:
        if at.parent in passed or (parent := by_id.get(at.parent)) is None:
            return True  # its origin is unknown
        passed.add(at.parent)
        at = parent
    return at.author != EMBEDDED


def author(ctx: Context, *parts: str) -> str:
    """Return the author of what a move makes of candidates, or of the kernel as shipped."""
    made_of = [ctx.store.candidate(ctx.run.id, name) for name in parts if name != incumbent.SHIPPED]
    theirs = next((c.author for c in made_of if untrusted(ctx, c)), None)
    if theirs is None:
        return EMBEDDED
    return theirs if theirs.startswith(_ONTO) else f"{_ONTO}{theirs}"
