"""What the embedded moves propose next: from the incumbent, and from the few most promising candidates beside it.

A rewrite that wins nothing by itself may be what the next one needs: descriptors come before warp specialization. So a
generation works on a small beam of parents: the incumbent, then the best source rewrites that were found right. Each
parent in turn gives one proposal. Nothing here is random.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pgo_agent.agent import citing, dispatch, incumbent, moves, ranking
from pgo_agent.agent.context import Context
from pgo_agent.agent.store import Candidate
from pgo_agent.sandbox.gate.verdict import Verdict

AUTHOR = "embedded"
WIDTH = 3  # parents of a generation
WORTH = 0.85  # a speedup below it is no promise: what a rewrite cost, the next one would have to earn first
DEPTH = 3  # rewrites on top of one another
_RIGHT = {Verdict.SLOWER, Verdict.UNDECIDED, Verdict.CHECKED, Verdict.NO_CHANGE}


@dataclass(frozen=True)
class Parent:
    """A source that moves start from."""

    name: str  # id of its candidate, or `shipped`
    source: str
    best: Mapping[str, moves.Best]


def proposals(ctx: Context) -> Iterator[tuple[moves.Proposal, str, str]]:
    """Proposals with their author and the parent of each. Moves that do not apply are recorded with their reasons."""
    yield from ((p, AUTHOR, of) for p, of in dispatch.proposals(ctx))
    waiting = [(p, _of(ctx, p)) for p in parents(ctx)]
    while waiting:
        parent, found = waiting.pop(0)
        proposal = next(found, None)
        if proposal is not None:
            yield proposal, AUTHOR, parent.name
            waiting.append((parent, found))


def parents(ctx: Context) -> list[Parent]:
    """The incumbent, then the most promising other rewrites."""
    current = incumbent.name(ctx)
    first = Parent(current, incumbent.source(ctx), incumbent.best_known(ctx, current))
    known = {c.id: c for c in ctx.store.candidates(ctx.run.id)}
    others = [c for c in known.values() if c.id != current and _promising(c, known)]
    others.sort(key=lambda c: (_score(ctx, c), c.generation, c.position))
    kept = others[: WIDTH - 1]
    return [first, *(Parent(c.id, c.source, incumbent.best_known(ctx, c.id)) for c in kept)]


def _of(ctx: Context, parent: Parent) -> Iterator[moves.Proposal]:
    from pgo_agent.agent.moves import embedded

    first = parent.name == incumbent.name(ctx)
    asked, seed = citing.asked(ctx, parent.name, parent.best), ctx.settings.get("seed", 0)
    for p in embedded.propose(parent.source, parent.best, incumbent.known_configs(ctx), ctx.device, asked, seed):
        if isinstance(p, moves.Skipped):
            ctx.store.add_skipped(ctx.run.id, parent.name, p.move, p.reason)
        elif first or p.kind == "source":  # other configurations of what does not win can wait until it does
            yield p


def _promising(c: Candidate, known: Mapping[str, Candidate]) -> bool:
    fit = c.kind == "source" and c.author == AUTHOR and c.verdict in _RIGHT and bool((c.built or {}).get("bundle"))
    return fit and (c.speedup is None or c.speedup >= WORTH) and _depth(c, known) < DEPTH


def _depth(c: Candidate, known: Mapping[str, Candidate]) -> int:
    """Rewrites between a candidate and the kernel as shipped, its own included."""
    depth, at = 0, c.id
    while at in known:
        depth, at = depth + 1, known[at].parent
    return depth


def _score(ctx: Context, c: Candidate) -> float:
    """Time over the incumbent's where it was measured, else over the tuned baseline's as far as it is known."""
    return 1 / c.speedup if c.speedup else ranking.rank(ctx, c)
