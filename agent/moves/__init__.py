"""The embedded optimizer: proposals in a fixed order, each with the symptom that it answers. No randomness, no model.

It is the default when there is no model, and the seed of the search when there is one. Source moves come first: they
can beat the tuned baseline; launch moves follow. Each source move brings the best known configurations with it, and one
that needs less shared memory, because a rewrite may move the best point.
"""

from collections.abc import Iterator, Mapping, Sequence

from pgo_agent.agent.moves import carry, launch
from pgo_agent.agent.moves.base import CARRIED, Best, DoesNotApply, Proposal, Skipped, SourceMove
from pgo_agent.agent.source import Config, sites, with_configs
from pgo_agent.sandbox.devices import Device

SOURCE_MOVES: tuple[SourceMove, ...] = (carry.MOVE,)
__all__ = ["CARRIED", "SOURCE_MOVES", "Best", "Proposal", "Skipped", "propose"]


def propose(
    source: str, best: Mapping[str, Best], measured: Sequence[Config], device: Device
) -> Iterator[Proposal | Skipped]:
    """All proposals for a source, and the moves that do not apply to it."""
    for move in SOURCE_MOVES:
        yield from _rewritten(move, source, best, device)
    yield from launch.propose(source, best, measured, device)


def _rewritten(move: SourceMove, source: str, best: Mapping[str, Best], device: Device) -> Iterator[Proposal | Skipped]:
    if device.arch not in move.archs:
        yield Skipped(move.name, f"not for sm_{device.arch}")
        return
    try:
        changed = move.rewrite(source)
    except DoesNotApply as e:
        yield Skipped(move.name, str(e))
        return
    yield Proposal(_with_neighbours(changed, best), "source", move.name, f"{move.symptom}; {move.gain}")


def _with_neighbours(source: str, best: Mapping[str, Best]) -> str:
    """The rewritten file at the best known configurations and one that is a stage shallower."""
    found = sites(source)
    configs = [b.config for b in launch.distinct(best.values())]
    if not found or not found[0].autotuned or not configs:
        return source
    deepest = max(configs, key=lambda c: (c.get("num_stages", 3), c.get("num_warps", 4)))
    shallower = deepest | {"num_stages": max(deepest.get("num_stages", 3) - 1, 1)}
    kept = [*configs[: CARRIED - 1], shallower] if shallower not in configs[:CARRIED] else configs[:CARRIED]
    return with_configs(source, found[0], kept)
