"""The embedded optimizer: proposals in the order of what the profile asks for. No model, and no randomness.

It is the default when there is no model, and the seed of the search when there is one. Moves that answer a bottleneck
come first, in the order of the bottlenecks, and cite it. The others follow as hypotheses, and say so. Among equals,
source moves come first, for they can beat the tuned baseline; then launch moves; then source moves of kernels that only
prepare for another one, and those that are meant for dots in kernels without one. A seed puts equal source moves into
another order.

A source move brings configurations with it: the best known ones, those that a sweep does not tell from them, and one
that needs less shared memory, for a rewrite may move the best point. A fault inside of a move is listed like a
precondition that does not hold: it never ends a run. Relies on libcst and sympy, which take long to import: who needs
only the types of `move.py` must not import this module.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random

from pgo_agent.agent.moves import launch_config, ptxas_flags
from pgo_agent.agent.moves.analysis.decorators import as_decorators
from pgo_agent.agent.moves.launch_sites import Config, sites, unfollowed, with_configs
from pgo_agent.agent.moves.move import CARRIED, NO_LAUNCH, Best, Proposal, RewriteInput, Skipped, SourceMove, attempted
from pgo_agent.agent.moves.priority import NO_PROFILE, ProfileEvidence
from pgo_agent.agent.moves.rewrites import (
    aligned_copy,
    cache_hints,
    guarded_loop,
    persistent_grid,
    tma_descriptors,
    warp_specialize,
)
from pgo_agent.agent.profile.cost_model import symptoms
from pgo_agent.sandbox.devices import Device

SOURCE_MOVES: tuple[SourceMove, ...] = (
    tma_descriptors.MOVE,
    aligned_copy.MOVE,
    warp_specialize.MOVE,
    guarded_loop.MOVE,
    persistent_grid.MOVE,
    cache_hints.MOVE,
    ptxas_flags.MOVE,
)


KEPT = 256  # rewrites: a generation asks for those of its few parents, a dozen each or two


@dataclass(frozen=True)
class _Rewrite:
    """What a proposal of a source move follows from."""

    name: str
    move: SourceMove = field(hash=False)
    source: str
    kernel: str
    told: str  # what `best` says now: whoever asks may change it
    best: Mapping[str, Best] = field(compare=False)
    device: Device = field(hash=False)


def propose(
    source: str,
    best: Mapping[str, Best],
    measured: Sequence[Config],
    device: Device,
    asked: ProfileEvidence = NO_PROFILE,
    seed: int = 0,
) -> Iterator[Proposal | Skipped]:
    """Yield all proposals for a source, and the moves that do not apply to it.

    `asked`: what holds it back. `seed`: shuffles source moves that it does not tell apart; 0 leaves them as they are.
    """
    every_site = sites(source)
    kernels = list(dict.fromkeys(s.kernel for s in every_site))
    if not kernels:
        uses = unfollowed(source).values()
        yield Skipped("every move", f"a launch is not followed: {next(iter(uses))}" if uses else NO_LAUNCH)
    several, timed = len(kernels) > 1, {k for b in best.values() for k in b.profiles}
    for idle in [k for k in kernels if timed and k not in timed]:
        yield Skipped(f"every move in {idle}", "no case that is timed launches it")
        kernels.remove(idle)
    pairs = [(move, kernel, asked.of(kernel, move.cures)) for move in _shuffled(seed) for kernel in kernels]
    launches = list(launch_config.propose(source, best, measured, device, asked))
    aside = _aside(kernels, best)
    streams = {k for k in kernels if all(b.profiles.get(k, b.static).get("dots") == 0 for b in best.values())}
    late = [k in aside or (k in streams and not cites and not move.streams) for move, k, cites in pairs]
    turns = [(asked.place(cites), later) for (_, _, cites), later in zip(pairs, late, strict=True)]
    turns += [(asked.place(x.cites), False) for x in launches]
    named = {i: f" in {pairs[i][1]}" if several else "" for i in range(len(pairs))}
    made = {
        i: _rewritten(move, source, kernel, named[i], best, device)
        for i, (move, kernel, _) in enumerate(pairs)
        if late[i] and kernel not in aside
    }
    yield from (m for m in made.values() if isinstance(m, Skipped))  # why not is told also where their turn never comes
    for i in sorted(range(len(turns)), key=lambda i: turns[i]):  # stable: equals as they stand in the catalogue
        if i >= len(pairs):
            yield launches[i - len(pairs)]
        elif not isinstance(made.get(i), Skipped):
            move, kernel, cites = pairs[i]
            proposal = _rewritten(move, source, kernel, named[i], best, device)
            yield proposal if isinstance(proposal, Skipped) else asked.cite(proposal, cites)


def _aside(kernels: Sequence[str], best: Mapping[str, Best]) -> set[str]:
    """Kernels without a dot, where another one has some: there is less to gain from what prepares for it."""
    dots = {k for b in best.values() for k, static in b.profiles.items() if static.get("dots")}
    return set(kernels) - dots if dots else set()


def _shuffled(seed: int) -> Sequence[SourceMove]:
    return Random(seed).sample(SOURCE_MOVES, len(SOURCE_MOVES)) if seed else SOURCE_MOVES


def _rewritten(
    move: SourceMove, source: str, kernel: str, where: str, best: Mapping[str, Best], device: Device
) -> Proposal | Skipped:
    """What a move makes of a source; it is kept, for a parent is asked again in every generation."""
    name = move.name + where
    if device.arch not in move.archs:
        return Skipped(name, f"not for sm_{device.arch}")
    return _attempt(_Rewrite(name, move, source, kernel, repr(best), best, device))


@lru_cache(maxsize=KEPT)
def _attempt(r: _Rewrite) -> Proposal | Skipped:
    def rewrite() -> str:
        source = as_decorators(r.source, {s.kernel for s in sites(r.source)})
        subject = _subject(source, r.kernel, r.best, r.device)
        return _with_neighbours(r.move.rewrite(subject), r.kernel, r.best, r.move.launch)

    return attempted(r.name, f"{r.move.symptom}; {r.move.gain}", rewrite, r.source)


def _subject(source: str, kernel: str, best: Mapping[str, Best], device: Device) -> RewriteInput:
    every_site = sites(source)
    site = next(s for s in every_site if s.kernel == kernel)
    bases = [b for b in launch_config.bases_of(site, every_site, best.values()) if b.profiles]
    # What a tuner of another file chooses is in no configuration, and yet what was built of it is known.
    bases = bases or [Best({}, b.profiles[kernel], b.profiles) for b in best.values() if kernel in b.profiles]
    if not bases:
        return RewriteInput(source, kernel, device)
    ailing = max(bases, key=lambda b: len(symptoms(b.static)))  # the first of those with most to cure
    grids = [b.blocks.get(kernel) for b in best.values()]
    blocks = max((n for n in grids if n is not None), default=None) if None not in grids else None
    statics = [b.profiles[kernel] for b in best.values() if kernel in b.profiles]  # cases share configurations
    return RewriteInput(source, kernel, device, ailing.config, ailing.static, blocks, statics)


def _with_neighbours(source: str, kernel: str, best: Mapping[str, Best], needed: Config) -> str:
    """The rewritten file at the best known configurations, those as fast, and one that is a stage shallower.

    Where the rewrite needs certain launch parameters, these; and last the best ones as they were, for cases whose
    launches the rewrite leaves alone.
    """
    every_site = sites(source)
    site = next((s for s in every_site if s.kernel == kernel), None)
    if site is None or (site.refused and not needed):
        return source
    if not site.autotuned:
        return with_configs(source, site, [needed]) if needed else source
    bases = [b.config for b in launch_config.bases_of(site, every_site, best.values())]
    if not bases:
        return source
    near = [
        launch_config.config_of(site, every_site, c, b.profiles.keys() or None) for b in best.values() for c in b.near
    ]
    configs = launch_config.unique([c | needed for c in (*bases, *near) if c is not None])
    if needed:
        return with_configs(source, site, launch_config.unique([*configs[: CARRIED - 1], *bases])[:CARRIED])
    deepest = max(bases, key=lambda c: (c.get("num_stages", 3), c.get("num_warps", 4)))
    shallower = deepest | {"num_stages": max(deepest.get("num_stages", 3) - 1, 1)}
    carried = [*configs[: CARRIED - 1], shallower] if shallower not in configs[:CARRIED] else configs[:CARRIED]
    return with_configs(source, site, carried)
