"""What the embedded moves propose next: from the incumbent, and from the few most promising candidates beside it.

A rewrite that wins nothing by itself may be what the next one needs: descriptors come before warp specialization. So
a generation works on a small beam of parents: the incumbent, then the best source rewrites that were found right,
whoever wrote them. Each parent in turn gives one proposal, after what a person pinned, which gives all of its own
first; what failed in a former run comes after all others. When patience nears its end, the runners-up go first, and
their launches are varied, too. The run's seed orders equals; else nothing here is random.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from pgo_agent.agent import moves
from pgo_agent.agent.evaluation import ranking
from pgo_agent.agent.moves.launch_sites import Config
from pgo_agent.agent.proposal import bandit, bottlenecks, case_dispatch, lessons
from pgo_agent.agent.run import incumbent, steering
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.provenance import EMBEDDED, author
from pgo_agent.agent.run.record.candidate import Candidate, NewCandidate
from pgo_agent.sandbox.gate.verdict import Verdict

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


# proposals ------------------------------------------------------------------------------------------------------------


def proposals(ctx: Context) -> Iterator[NewCandidate]:
    """What the moves propose. Moves that do not apply are recorded with their reasons."""
    past, later = lessons.setbacks(ctx), list[NewCandidate]()
    for proposed in _in_turn(ctx):
        if why := past.of(proposed):
            later.append(replace(proposed, rationale=f"{proposed.rationale}; {why}"))
        else:
            yield proposed
    yield from later


def _in_turn(ctx: Context) -> Iterator[NewCandidate]:
    yield from case_dispatch.proposals(ctx)
    if which := steering.pinned(ctx):
        alone = _parent(ctx, which)
        yield from (NewCandidate.of(p, author(ctx, which), which) for p in _of(ctx, alone))
    waiting = [(p, _of(ctx, p)) for p in parents(ctx) if p.name != which]
    while waiting:
        parent, found = waiting.pop(0)
        proposal = next(found, None)
        if proposal is not None:
            yield NewCandidate.of(proposal, author(ctx, parent.name), parent.name)
            waiting.append((parent, found))


def parents(ctx: Context) -> list[Parent]:
    """The incumbent, then the most promising other rewrites; the other way round when patience nears its end."""
    first = _parent(ctx, incumbent.name(ctx))
    if again := again_from(ctx):
        return [*(_parent(ctx, name) for name in again), first]
    return [first, *(_parent(ctx, c.id) for c in runners_up(ctx)[: WIDTH - 1])]


def again_from(ctx: Context) -> list[str]:
    """The runners-up from which the search starts again; none while patience lasts."""
    return [c.id for c in runners_up(ctx)[:WIDTH]] if restarts(ctx) else []


def restarts(ctx: Context) -> bool:
    """Whether the search starts again from the runners-up: one more generation without a win ends the run.

    Never where nothing is measured: there no generation can win.
    """
    return bool(ctx.baseline().environment) and generations_without_win(ctx) >= max(1, ctx.settings.patience - 1)


def generations_without_win(ctx: Context) -> int:
    """Finished generations since the last one that won."""
    won = {c.generation for c in ctx.store.candidates(ctx.run.id) if c.verdict == Verdict.ACCEPTED}
    finished = [n for n, done in ctx.store.generations(ctx.run.id).items() if done]
    return sum(n > max(won, default=0) for n in finished)


def runners_up(ctx: Context, kinds: Collection[str] = ("source",)) -> list[Candidate]:
    """What was found right and is not far behind, the best first: the incumbent is not among them."""
    current, known = incumbent.name(ctx), {c.id: c for c in ctx.store.candidates(ctx.run.id)}
    fit = [c for c in known.values() if c.id != current and c.kind in kinds and _fit(c, known)]
    lags = {c.id: _gain(current, known) / _gain(c.id, known) for c in fit if c.speedup}  # behind the incumbent of now
    found = [c for c in fit if lags.get(c.id, 1.0) <= 1 / WORTH]
    return sorted(found, key=lambda c: (lags.get(c.id) or ranking.rank(ctx, c), c.generation, c.position))


def _parent(ctx: Context, which: str) -> Parent:
    return Parent(which, incumbent.python(ctx, which), incumbent.best_known(ctx, which))


def _of(ctx: Context, parent: Parent) -> Iterator[moves.Proposal]:
    first = parent.name == incumbent.name(ctx)
    again = not first and (restarts(ctx) or parent.name == steering.pinned(ctx))
    tried = _configs(ctx, parent.name) if again else incumbent.known_configs(ctx)
    for p in _moved(ctx, parent, tried):
        if isinstance(p, moves.Skipped):
            ctx.store.add_skipped(ctx.run.id, parent.name, p.move, p.reason)
        elif first or again or p.kind == "source":  # other configurations of what does not win can wait until it does
            yield p


def _moved(ctx: Context, parent: Parent, tried: list[Config]) -> Iterator[moves.Proposal | moves.Skipped]:
    """What the moves make of a parent. Of somebody's text no analysis may end the run, whatever stands in it."""
    from pgo_agent.agent.moves import catalogue

    asked = bottlenecks.asked(ctx, parent.name, parent.best)
    try:
        yield from catalogue.propose(parent.source, parent.best, tried, ctx.device, asked, ctx.settings.seed)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, SyntaxError) as e:
        if author(ctx, parent.name) == EMBEDDED:
            raise
        yield moves.Skipped("every move", f"its text cannot be analysed ({type(e).__name__})")


def _configs(ctx: Context, which: str) -> list[Config]:
    """The configurations that a candidate was built with: those of other texts say nothing of it."""
    if which == incumbent.SHIPPED:
        return [p.config for p in ctx.baseline().points]
    built = ctx.store.candidate(ctx.run.id, which).build
    return [o.config for options in built.choices.values() for o in options]


def _fit(c: Candidate, known: Mapping[str, Candidate]) -> bool:
    """Whether moves may start from it: right, built, not made of too many; and no text of what is a parent already."""
    same = c.verdict == Verdict.NO_CHANGE and c.proposer == bandit.MODEL
    return c.verdict in _RIGHT and c.has_bundle and not same and _depth(c, known) < DEPTH


def _gain(which: str, known: Mapping[str, Candidate]) -> float:
    """How many times as fast as the kernel as shipped, by what was measured one against the other."""
    gain, left = 1.0, dict(known)
    while (c := left.pop(which, None)) is not None:
        gain, which = gain * (c.speedup or 1.0), c.against or incumbent.SHIPPED
    return gain


def _depth(c: Candidate, known: Mapping[str, Candidate]) -> int:
    """Rewrites between a candidate and the kernel as shipped, its own included."""
    depth, at = 0, c.id
    while at in known:
        depth, at = depth + 1, known[at].parent
    return depth
