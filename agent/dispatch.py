"""Proposes to keep a rewrite where it pays: both kernels in one file, and a launcher that chooses by its arguments.

A rewrite is often faster in some cases and slower in others, and as a whole no gain. Only what was measured on a GPU
against the incumbent of now is asked; the condition comes from the inputs of the public cases (`telling.py`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pgo_agent.agent import incumbent
from pgo_agent.agent.context import Context
from pgo_agent.agent.moves import CARRIED, Best, Proposal, launch
from pgo_agent.agent.rewriting import DoesNotApply
from pgo_agent.agent.source import sites, with_configs
from pgo_agent.agent.store import Candidate
from pgo_agent.agent.telling import condition
from pgo_agent.sandbox.judge import stats

MOVE = "dispatch"
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
        total = 1.0
        for ratio in self.ratios.values():
            total *= max(1.0, ratio)
        return total


def proposals(ctx: Context) -> Iterator[tuple[Proposal, str]]:
    """Proposals, each with the candidate that it is made of; what cannot be told apart is recorded with its reason."""
    found = [m for c in ctx.store.candidates(ctx.run.id) if (m := _mixed(ctx, c)) and m.wins and m.losses]
    made = 0
    for mixed in sorted(found, key=lambda x: -x.promise):
        if made == MOST:
            return
        try:
            yield _proposal(ctx, mixed), mixed.candidate.id
            made += 1
        except DoesNotApply as e:
            ctx.store.add_skipped(ctx.run.id, mixed.candidate.id, MOVE, str(e))


def _mixed(ctx: Context, c: Candidate) -> Mixed | None:
    """What was measured of a source candidate against the incumbent of now; None for any other."""
    if (
        c.kind != "source"
        or c.speedup is None
        or ctx.store.incumbent_of(ctx.run.id, c.generation) != incumbent.name(ctx)
    ):
        return None
    samples = ctx.store.evidence(ctx.run.id, c.id).get("samples", {})
    times = samples.get("time") or samples.get("quick") or {}
    return Mixed(c, {case: stats.ratio(t["incumbent"], t["candidate"]).mid for case, t in times.items()})


def _proposal(ctx: Context, mixed: Mixed) -> Proposal:
    from pgo_agent.agent.rewriting.both import both

    inputs = _inputs(ctx)
    test = condition([inputs[c] for c in mixed.wins], [inputs[c] for c in mixed.losses])
    if test is None:
        raise DoesNotApply("no one or two comparisons of its arguments tell the cases that it wins from those it loses")
    current = incumbent.name(ctx)
    own = _at_its_best(incumbent.source(ctx), incumbent.best_known(ctx, current))
    said = ", ".join(f"{c.split('/', 1)[1]} {mixed.ratios[c]:.3f}x" for c in (*mixed.wins, *mixed.losses))
    why = f"{mixed.candidate.move} wins some cases and loses others ({said}); used where {test}"
    return Proposal(both(own, mixed.candidate.source, test), "source", f"{MOVE}: {mixed.candidate.move}", why)


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
