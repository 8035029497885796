"""Proposes to keep a rewrite where it pays: both kernels in one file, and a launcher that chooses by its arguments.

A rewrite is often faster in some cases and slower in others: as a whole no gain, or a smaller one. Only what was
measured on a GPU is asked; the condition comes from the inputs of the public cases (`predicates.py`). An incumbent that
beat the kernel step by step may still lose a case to that kernel, tuned, or to one that was measured beside it against
the same and gained less as a whole: then those two are put together.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from pgo_agent.agent.moves import CARRIED, Best, Proposal, Skipped, launch_config
from pgo_agent.agent.moves.launch_sites import sites, with_configs
from pgo_agent.agent.moves.move import attempted
from pgo_agent.agent.proposal.predicates import condition
from pgo_agent.agent.run import incumbent
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.provenance import author
from pgo_agent.agent.run.record.candidate import Candidate, NewCandidate
from pgo_agent.sandbox.gate.verdict import Verdict

MOVE = "dispatch"  # and the move that it is made of
GAIN, LOSS = 1.02, 0.995  # a case is won above the one, lost below the other; what lies between goes either way
MOST = 2  # proposals of a generation
_RIGHT = {Verdict.ACCEPTED, Verdict.SLOWER, Verdict.UNDECIDED}


@dataclass(frozen=True)
class Mixed:
    """A rewrite that wins some cases and loses others."""

    candidate: Candidate
    other: str  # what it was measured against: `shipped` or an accepted candidate
    ratios: Mapping[str, float]  # case -> times faster than that; than `shipped` as tuned, where that was timed

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


def proposals(ctx: Context) -> Iterator[NewCandidate]:
    """Proposals, each of the candidate that it is made of; what cannot be told apart is recorded with its reason."""
    return islice(_proposals(ctx), MOST)


def _proposals(ctx: Context) -> Iterator[NewCandidate]:
    for mixed in sorted(_mixed(ctx), key=lambda x: -x.promise):
        proposal, of = _proposal(ctx, mixed), mixed.candidate.id
        if isinstance(proposal, Skipped):
            ctx.store.add_skipped(ctx.run.id, of, proposal.move, proposal.reason)
        else:  # it holds the text of the other, too
            yield NewCandidate.of(proposal, author(ctx, of, mixed.other), of)


def _mixed(ctx: Context) -> list[Mixed]:
    """What wins some cases and loses others, and was not proposed before: the incumbent of now against the tuned
    baseline, or else against the one before it; rewrites against the incumbent of now, and those beside it."""
    known, current = ctx.store.candidates(ctx.run.id), incumbent.name(ctx)
    done = {c.parent for c in known if c.move.startswith(MOVE)}
    won = next((c for c in known if c.id == current), None)
    fit = [c for c in known if c.kind == "source" and c.verdict in _RIGHT and c.against and c.id not in done]
    found: dict[str, Mixed] = {}
    for c in fit:
        ratios = _beside(ctx, c, won) if won and current not in (c.id, c.against) else _against(ctx, c, current)
        mixed = [Mixed(c, other, r) for other, r in ratios.items()]
        found |= {m.candidate.id: m for m in mixed if m.wins and m.losses}
    return list(found.values())


Ratios = dict[str, dict[str, float]]  # what a candidate is compared with -> case -> times faster than that


def _against(ctx: Context, c: Candidate, current: str) -> Ratios:
    """Against what it was measured against, and as the incumbent of now against the tuned baseline as well."""
    if current not in (c.id, c.against):
        return {}
    evidence = ctx.store.evidence(ctx.run.id, c.id)
    ratios, tuned = {c.against or incumbent.SHIPPED: incumbent.gains(evidence)}, incumbent.gains(evidence, "tuned")
    if tuned and (current == c.id or incumbent.SHIPPED in ratios):
        ratios[incumbent.SHIPPED] = tuned
    return ratios


def _beside(ctx: Context, c: Candidate, won: Candidate) -> Ratios:
    """Of what was measured against the same as the incumbent of now: against that incumbent, by what both gained."""
    if c.against != won.against or won.kind == "ttgir":
        return {}
    ours, theirs = (incumbent.gains(ctx.store.evidence(ctx.run.id, x.id)) for x in (c, won))
    return {won.id: {case: ours[case] / theirs[case] for case in ours.keys() & theirs.keys()}}


def _proposal(ctx: Context, mixed: Mixed) -> Proposal | Skipped:
    from pgo_agent.agent.moves.analysis.merge_kernels import both

    given, name = inputs(ctx), f"{MOVE}: {mixed.candidate.move}"
    test = condition([given[c] for c in mixed.wins], [given[c] for c in mixed.losses])
    if test is None:
        return Skipped(name, "no one or two comparisons of its arguments tell the cases that it wins from the others")
    said = ", ".join(f"{c.split('/', 1)[1]} {mixed.ratios[c]:.3f}x" for c in (*mixed.wins, *mixed.losses))
    why = f"{mixed.candidate.move} wins some cases and loses others ({said}); used where {test}"

    def merged() -> str:
        own = _at_its_best(incumbent.python(ctx, mixed.other), incumbent.best_known(ctx, mixed.other))
        return both(own, mixed.candidate.source, test)

    return attempted(name, why, merged, incumbent.python(ctx, mixed.other))


def inputs(ctx: Context) -> dict[str, Any]:
    """What the launcher is given in each public case, as the plans of the kernel as shipped have it."""
    plans = {case: ctx.store.contents.manifest(p.bundle)["plans"] for case, p in ctx.baseline().shipped.items()}
    return {case: plans[case][case][p.choice]["inputs"] for case, p in ctx.baseline().shipped.items()}


def _at_its_best(source: str, best: Mapping[str, Best]) -> str:
    """The file with the best known configuration of each case at every autotuned launch."""
    for i in range(len(sites(source))):
        found = sites(source)
        configs = [b.config for b in launch_config.bases_of(found[i], found, best.values())][:CARRIED]
        if found[i].autotuned and configs:
            source = with_configs(source, found[i], configs)
    return source
