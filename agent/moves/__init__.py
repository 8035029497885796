"""The embedded optimizer: proposals in a fixed order, each with the symptom that it answers. No randomness, no model.

It is the default when there is no model, and the seed of the search when there is one. Source moves come first: they
can beat the tuned baseline; launch moves follow. Moves address every kernel of a launcher by its name. Each source move
brings the best known configurations with it, and one that needs less shared memory, because a rewrite may move the
best point.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence

from pgo_agent.agent.moves import carry, launch
from pgo_agent.agent.moves.base import CARRIED, Best, DoesNotApply, Proposal, Skipped, SourceMove, Subject
from pgo_agent.agent.source import Config, sites, with_configs
from pgo_agent.sandbox.devices import Device

SOURCE_MOVES: tuple[SourceMove, ...] = (carry.MOVE,)
__all__ = ["CARRIED", "SOURCE_MOVES", "Best", "Proposal", "Skipped", "propose"]


def propose(
    source: str, best: Mapping[str, Best], measured: Sequence[Config], device: Device
) -> Iterator[Proposal | Skipped]:
    """All proposals for a source, and the moves that do not apply to it."""
    found = sites(source)
    kernels = list(dict.fromkeys(s.kernel for s in found))
    if not kernels:
        yield Skipped("every move", "the launcher launches no kernel that is defined in this file")
    for move in SOURCE_MOVES:
        for kernel in kernels:
            yield _rewritten(move, source, kernel, f" in {kernel}" if len(kernels) > 1 else "", best, device)
    yield from launch.propose(source, best, measured, device)


def _rewritten(
    move: SourceMove, source: str, kernel: str, where: str, best: Mapping[str, Best], device: Device
) -> Proposal | Skipped:
    name = move.name + where
    if device.arch not in move.archs:
        return Skipped(name, f"not for sm_{device.arch}")
    try:
        changed = _with_neighbours(move.rewrite(_subject(source, kernel, best, device)), kernel, best, move.launch)
        ast.parse(changed)
    except DoesNotApply as e:
        return Skipped(name, str(e))
    except SyntaxError as e:
        return Skipped(name, f"a fault of this move: it wrote what is not Python ({e.msg}, line {e.lineno})")
    return Proposal(changed, "source", name, f"{move.symptom}; {move.gain}")


def _subject(source: str, kernel: str, best: Mapping[str, Best], device: Device) -> Subject:
    known = [b for b in launch.distinct(best.values()) if kernel in b.profiles]
    if not known:
        return Subject(source, kernel, device)
    return Subject(source, kernel, device, known[0].config, known[0].profiles[kernel])


def _with_neighbours(source: str, kernel: str, best: Mapping[str, Best], needed: Config) -> str:
    """The rewritten file at the best known configurations and one that is a stage shallower, as the rewrite needs."""
    site = next((s for s in sites(source) if s.kernel == kernel), None)
    if site is None:
        return source
    if not site.autotuned:
        return with_configs(source, site, [needed]) if needed else source
    configs = _unique([b.config | needed for b in launch.distinct(best.values())])
    if not configs:
        return source
    deepest = max(configs, key=lambda c: (c.get("num_stages", 3), c.get("num_warps", 4)))
    shallower = deepest | {"num_stages": max(deepest.get("num_stages", 3) - 1, 1)}
    kept = [*configs[: CARRIED - 1], shallower] if shallower not in configs[:CARRIED] else configs[:CARRIED]
    return with_configs(source, site, kept)


def _unique(configs: Sequence[Config]) -> list[Config]:
    return [c for i, c in enumerate(configs) if c not in configs[:i]]
