"""Proposals of the embedded moves: from the incumbent, and from the few most promising candidates beside it.

A rewrite without a gain may be what the next one needs: descriptors come before warp specialization. So a generation
works on a small beam of parents: the incumbent, then the best source rewrites that were found right, whoever wrote
them. A pinned parent gives all its proposals first; then each parent gives one in turn. What failed in an earlier run
comes last. When patience nears its end, the runners-up go first, and their launches are varied, too. The run's seed
breaks ties; nothing else here is random.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from pgo_agent.agent import moves
from pgo_agent.agent.evaluation import ranking
from pgo_agent.agent.moves.launch_sites import Config, numbers
from pgo_agent.agent.proposal import bandit, bottlenecks, case_dispatch, lessons
from pgo_agent.agent.run import incumbent, steering
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.provenance import EMBEDDED, author
from pgo_agent.agent.run.record.candidate import Candidate, NewCandidate
from pgo_agent.sandbox.gate.verdict import Verdict

WIDTH = 3  # parents of a generation
WORTH = 0.85  # a parent with a lower speedup is not worth it: the next rewrite would first have to earn back the loss
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
    """Yield what the moves propose. Moves that do not apply are recorded with their reasons."""
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
        parent, stream = waiting.pop(0)
        proposal = next(stream, None)
        if proposal is not None:
            yield NewCandidate.of(proposal, author(ctx, parent.name), parent.name)
            waiting.append((parent, stream))


def parents(ctx: Context) -> list[Parent]:
    """Return the incumbent, then the best runners-up; the other way round when patience nears its end."""
    first = _parent(ctx, incumbent.name(ctx))
    if again := again_from(ctx):
        return [*(_parent(ctx, name) for name in again), first]
    return [first, *(_parent(ctx, c.id) for c in runners_up(ctx)[: WIDTH - 1])]


def again_from(ctx: Context) -> list[str]:
    """Return the ids of the runners-up from which the search restarts; empty while patience lasts."""
    return [c.id for c in runners_up(ctx)[:WIDTH]] if restarts(ctx) else []


def restarts(ctx: Context) -> bool:
    """Whether the search restarts from the runners-up: one more generation without a win ends the run.

    False if nothing is measured: then no generation can win.
    """
    return bool(ctx.baseline().environment) and generations_without_win(ctx) >= max(1, ctx.settings.patience - 1)


def generations_without_win(ctx: Context) -> int:
    """Return the number of finished generations since the last one with an accepted candidate."""
    won = {c.generation for c in ctx.store.candidates(ctx.run.id) if c.verdict == Verdict.ACCEPTED}
    finished = [n for n, done in ctx.store.generations(ctx.run.id).items() if done]
    return sum(n > max(won, default=0) for n in finished)


def runners_up(ctx: Context, kinds: Collection[str] = ("source",)) -> list[Candidate]:
    """Return right candidates that are not far behind the incumbent, the best first, without the incumbent."""
    current, by_id = incumbent.name(ctx), {c.id: c for c in ctx.store.candidates(ctx.run.id)}
    fit = [c for c in by_id.values() if c.id != current and c.kind in kinds and _fit(c, by_id)]
    best = _gain(current, by_id)
    lags = {c.id: best / _gain(c.id, by_id) for c in fit if c.speedup}  # behind the incumbent of now
    near = [c for c in fit if lags.get(c.id, 1.0) <= 1 / WORTH]
    return sorted(near, key=lambda c: (lags.get(c.id) or ranking.rank(ctx, c), c.generation, c.position))


def _parent(ctx: Context, which: str) -> Parent:
    return Parent(which, incumbent.python(ctx, which), incumbent.best_known(ctx, which))


def _of(ctx: Context, parent: Parent) -> Iterator[moves.Proposal]:
    first = parent.name == incumbent.name(ctx)
    again = not first and (restarts(ctx) or parent.name == steering.pinned(ctx))
    tried = _configs(ctx, parent.name) if again else incumbent.known_configs(ctx)
    for p in _moved(ctx, parent, tried):
        if isinstance(p, moves.Skipped):
            ctx.store.add_skipped(ctx.run.id, parent.name, p.move, p.reason)
        elif first or again or p.kind == "source":  # launches of a runner-up wait until it wins
            yield p


def _moved(ctx: Context, parent: Parent, tried: list[Config]) -> Iterator[moves.Proposal | moves.Skipped]:
    """What the moves make of a parent. An analysis that fails on an untrusted text does not end the run."""
    from pgo_agent.agent.moves import catalogue

    asked = bottlenecks.asked(ctx, parent.name, parent.best)
    try:
        yield from catalogue.propose(parent.source, parent.best, tried, ctx.device, asked, ctx.settings.seed)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, SyntaxError) as e:
        if author(ctx, parent.name) == EMBEDDED:
            raise
        yield moves.Skipped("every move", f"its text cannot be analysed ({type(e).__name__})")


def _configs(ctx: Context, which: str) -> list[Config]:
    """The configurations that a candidate was built with: those of other texts do not count for it."""
    if which == incumbent.SHIPPED:
        return [numbers(p.config) for p in ctx.baseline().points]
    built = ctx.store.candidate(ctx.run.id, which).build
    return [numbers(o.config) for options in built.choices.values() for o in options]


def _fit(c: Candidate, by_id: Mapping[str, Candidate]) -> bool:
    """Whether moves may start from it: right, built, with fewer than DEPTH rewrites, and not a copy of another
    parent."""
    same = c.verdict == Verdict.NO_CHANGE and c.proposer == bandit.MODEL
    return c.verdict in _RIGHT and c.has_bundle and not same and _depth(c, by_id) < DEPTH


def _gain(which: str, by_id: Mapping[str, Candidate]) -> float:
    """Speedup over the kernel as shipped: the product of the gains along the chain of incumbents."""
    gain, passed = 1.0, set[str]()
    while which not in passed and (c := by_id.get(which)) is not None:
        passed.add(which)
        gain, which = gain * (c.speedup or 1.0), c.against or incumbent.SHIPPED
    return gain


def _depth(c: Candidate, by_id: Mapping[str, Candidate]) -> int:
    """The number of rewrites between a candidate and the kernel as shipped, its own included."""
    depth, at = 0, c.id
    while at in by_id:
        depth, at = depth + 1, by_id[at].parent
    return depth
