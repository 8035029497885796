"""Which embedded rewrites apply to the incumbent, with the bottleneck each answers, and which do not, with the reason.

The moves run as for the beam of parents, and the process caches their results, so they run once. The text that they
write is not shown: they propose it themselves.
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
    """Return lines for the moves that apply, all launch steps in one, and lines for those that do not."""
    from pgo_agent.agent.moves import catalogue  # libcst and sympy take long to import

    which = steering.start(ctx)
    best = incumbent.best_known(ctx, which)
    by_source = {c.source: c for c in ctx.store.candidates(ctx.run.id)}
    asked = bottlenecks.asked(ctx, which, best)
    results = list(
        catalogue.propose(incumbent.python(ctx, which), best, incumbent.known_configs(ctx), ctx.device, asked)
    )
    proposals = [p for p in results if isinstance(p, Proposal)]
    described = [_describe(p, by_source) for p in proposals if p.kind != "launch"]
    steps = [p.move for p in proposals if p.kind == "launch"]
    if steps:
        described.append(f"launch parameters, a step at a time: {', '.join(dict.fromkeys(steps))}")
    return [text.line(t, LONGEST) for t in described[:MOST]], _skipped([p for p in results if isinstance(p, Skipped)])


def _describe(p: Proposal, by_source: Mapping[str, Candidate]) -> str:
    rationale = p.rationale.removesuffix(f"; {HYPOTHESIS}")
    because = bottlenecks.because(p.cites)
    asks = f" [asked for by {because}]" if because else ""
    before = by_source.get(p.source)
    came = f" [came to: {before.verdict}]" if before and before.verdict else ""
    return f"{p.move}: {rationale}{asks}{came}"


def _skipped(skipped: list[Skipped]) -> list[str]:
    """A line for each reason, with all moves that have it."""
    reasons: dict[str, list[str]] = {}
    for s in skipped:
        reasons.setdefault(s.reason, []).append(s.move)
    described = [f"{', '.join(dict.fromkeys(names))}: {reason}" for reason, names in reasons.items()]
    return [text.line(t, LONGEST) for t in described[:MOST]]
