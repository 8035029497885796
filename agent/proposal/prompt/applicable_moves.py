"""Which embedded rewrites apply to the incumbent, with what asks for each, and which do not, with the reason.

The moves are asked as the beam asks them, and what they make is kept in the process: neither works twice. What they
write is not shown, for they propose it themselves.
"""

from collections.abc import Mapping

from pgo_agent.agent import text
from pgo_agent.agent.moves import Proposal, Skipped
from pgo_agent.agent.moves.priority import HYPOTHESIS
from pgo_agent.agent.proposal import bottlenecks
from pgo_agent.agent.run import incumbent, steering
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.record.candidate import Candidate

MOST = 12  # lines of each kind
LONGEST = 330  # characters of one


def lines(ctx: Context) -> tuple[list[str], list[str]]:
    """Of the moves that apply: launch steps in one line, as their names say all. Of those that do not."""
    from pgo_agent.agent.moves import catalogue  # libcst and sympy take long to import

    which = steering.start(ctx)
    best = incumbent.best_known(ctx, which)
    known = {c.source: c for c in ctx.store.candidates(ctx.run.id)}
    asked = bottlenecks.asked(ctx, which, best)
    found = list(catalogue.propose(incumbent.python(ctx, which), best, incumbent.known_configs(ctx), ctx.device, asked))
    proposals = [p for p in found if isinstance(p, Proposal)]
    told = [_told(p, known) for p in proposals if p.kind != "launch"]
    steps = [p.move for p in proposals if p.kind == "launch"]
    if steps:
        told.append(f"launch parameters, a step at a time: {', '.join(dict.fromkeys(steps))}")
    return [text.line(t, LONGEST) for t in told[:MOST]], _skipped([p for p in found if isinstance(p, Skipped)])


def _told(p: Proposal, known: Mapping[str, Candidate]) -> str:
    rationale = p.rationale.removesuffix(f"; {HYPOTHESIS}")
    because = bottlenecks.because(p.cites)
    asks = f" [asked for by {because}]" if because else ""
    before = known.get(p.source)
    came = f" [came to: {before.verdict}]" if before and before.verdict else ""
    return f"{p.move}: {rationale}{asks}{came}"


def _skipped(found: list[Skipped]) -> list[str]:
    """A line for each reason: several moves may have the same."""
    reasons: dict[str, list[str]] = {}
    for s in found:
        reasons.setdefault(s.reason, []).append(s.move)
    told = [f"{', '.join(dict.fromkeys(names))}: {reason}" for reason, names in reasons.items()]
    return [text.line(t, LONGEST) for t in told[:MOST]]
