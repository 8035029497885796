"""Proposes to keep a rewrite where it pays: both kernels in one file, and a launcher that chooses by its arguments.

A rewrite is often faster in some cases and slower in others, and as a whole no gain. Only what was measured on a GPU
against the incumbent of now is asked; the condition comes from the inputs of the public cases (`telling.py`).
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from pgo_agent.agent import incumbent
from pgo_agent.agent.context import Context
from pgo_agent.agent.moves import CARRIED, Best, Proposal, Skipped, launch
from pgo_agent.agent.moves.base import attempted
from pgo_agent.agent.source import sites, with_configs
from pgo_agent.agent.store import Candidate
from pgo_agent.agent.telling import condition

MOVE = "dispatch"  # and the move that it is made of
GAIN, LOSS = 1.02, 0.995  # a case is won above the one, lost below the other; what lies between goes either way
MOST = 2  # proposals of a generation


@dataclass(frozen=True)
class Mixed:
    """A rewrite that wins some cases and loses others."""

    candidate: Candidate
    ratios: Mapping[str, float]  # case -> times faster than the incumbent

    @property
    def wins(self) -> list[str]:
        return [c for c, r in self.ratios.items() if r >= GAIN]

    @property
    def losses(self) -> list[str]:
        return [c for c, r in self.ratios.items() if r <= LOSS]

    @property
    def promise(self) -> float:
        """The product of the ratios, were every lost case as it was."""
        return math.prod(max(1.0, ratio) for ratio in self.ratios.values())


def proposals(ctx: Context) -> Iterator[tuple[Proposal, str]]:
    """Proposals, each with the candidate that it is made of; what cannot be told apart is recorded with its reason."""
    return islice(_proposals(ctx), MOST)


def _proposals(ctx: Context) -> Iterator[tuple[Proposal, str]]:
    for mixed in sorted(_mixed(ctx), key=lambda x: -x.promise):
        found = _proposal(ctx, mixed)
        if isinstance(found, Skipped):
            ctx.store.add_skipped(ctx.run.id, mixed.candidate.id, found.move, found.reason)
        else:
            yield found, mixed.candidate.id


def _mixed(ctx: Context) -> list[Mixed]:
    """What was measured against the incumbent of now, wins here and loses there, and was not proposed before."""
    known = ctx.store.candidates(ctx.run.id)
    done = {c.parent for c in known if c.move.startswith(MOVE)}
    measured = [c for c in known if c.kind == "source" and c.speedup is not None and c.id not in done]
    if not measured:
        return []
    current, incumbents = incumbent.name(ctx), ctx.store.incumbents(ctx.run.id)
    of_now = [c for c in measured if incumbents[c.generation] == current]
    found = [Mixed(c, incumbent.gains(ctx.store.evidence(ctx.run.id, c.id))) for c in of_now]
    return [m for m in found if m.wins and m.losses]


def _proposal(ctx: Context, mixed: Mixed) -> Proposal | Skipped:
    from pgo_agent.agent.rewriting.both import both

    inputs, name = _inputs(ctx), f"{MOVE}: {mixed.candidate.move}"
    test = condition([inputs[c] for c in mixed.wins], [inputs[c] for c in mixed.losses])
    if test is None:
        return Skipped(name, "no one or two comparisons of its arguments tell the cases that it wins from the others")
    said = ", ".join(f"{c.split('/', 1)[1]} {mixed.ratios[c]:.3f}x" for c in (*mixed.wins, *mixed.losses))
    why = f"{mixed.candidate.move} wins some cases and loses others ({said}); used where {test}"

    def merged() -> str:
        own = _at_its_best(incumbent.source(ctx), incumbent.best_known(ctx, incumbent.name(ctx)))
        return both(own, mixed.candidate.source, test)

    return attempted(name, why, merged)


def _inputs(ctx: Context) -> dict[str, Any]:
    """What the launcher is given in each public case, as the plans of the kernel as shipped have it."""
    found = {}
    for case, point in ctx.baseline()["shipped"].items():
        plans = ctx.store.shelf.manifest(point["bundle"])["plans"][case]
        found[case] = plans[point["choice"]]["inputs"]
    return found


def _at_its_best(source: str, best: Mapping[str, Best]) -> str:
    """The file with the best known configuration of each case at every autotuned launch."""
    for i in range(len(sites(source))):
        found = sites(source)
        configs = [b.config for b in launch.bases_of(found[i], found, best.values())][:CARRIED]
        if found[i].autotuned and configs:
            source = with_configs(source, found[i], configs)
    return source
