"""Proposes to keep a rewrite where it pays: both kernels in one file, and a launcher that chooses by its arguments.

A rewrite is often faster in some cases and slower in others: overall no gain, or a small one. Only GPU measurements
count; the condition comes from the inputs of the public cases (`predicates.py`). An incumbent may also lose a case to
the tuned kernel as shipped, or to another candidate with the same incumbent: then those two are merged.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from pgo_agent.agent.moves import CARRIED, Best, Proposal, Skipped, launch_config
from pgo_agent.agent.moves.launch_sites import sites, with_configs
from pgo_agent.agent.moves.move import attempted
from pgo_agent.agent.proposal.predicates import condition
from pgo_agent.agent.run import incumbent
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.provenance import author
from pgo_agent.agent.run.record.candidate import Candidate, NewCandidate
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.json_codec import JsonObject

MOVE = "dispatch"  # followed by the name of the move whose rewrite it dispatches to
GAIN, LOSS = 1.02, 0.995  # a case is won from GAIN on, and lost up to LOSS; either kernel may serve what lies between
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
        """The product of the ratios, with 1.0 for each lost case."""
        return math.prod(max(1.0, ratio) for ratio in self.ratios.values())


def proposals(ctx: Context) -> Iterator[NewCandidate]:
    """Yield at most MOST proposals. A rewrite without a condition is recorded as skipped, with the reason."""
    return islice(_proposals(ctx), MOST)


def _proposals(ctx: Context) -> Iterator[NewCandidate]:
    for mixed in sorted(_mixed(ctx), key=lambda x: -x.promise):
        proposal, of = _proposal(ctx, mixed), mixed.candidate.id
        if isinstance(proposal, Skipped):
            ctx.store.add_skipped(ctx.run.id, of, proposal.move, proposal.reason)
        else:  # it holds the text of the other, too
            yield NewCandidate.of(proposal, author(ctx, of, mixed.other), of)


def _mixed(ctx: Context) -> list[Mixed]:
    """Candidates that win some cases and lose others, and were not dispatched before. The present incumbent is compared
    with the tuned baseline or its predecessor, other rewrites with the present incumbent."""
    candidates, current = ctx.store.candidates(ctx.run.id), incumbent.name(ctx)
    done = {c.parent for c in candidates if c.move.startswith(MOVE)}
    winner = next((c for c in candidates if c.id == current), None)
    fit = [c for c in candidates if c.kind == "source" and c.verdict in _RIGHT and c.against and c.id not in done]
    by_candidate: dict[str, Mixed] = {}
    for c in fit:
        ratios = _beside(ctx, c, winner) if winner and current not in (c.id, c.against) else _against(ctx, c, current)
        mixed = [Mixed(c, other, r) for other, r in ratios.items()]
        by_candidate |= {m.candidate.id: m for m in mixed if m.wins and m.losses}
    return list(by_candidate.values())


Ratios = dict[str, dict[str, float]]  # what a candidate is compared with -> case -> times faster than that


def _against(ctx: Context, c: Candidate, current: str) -> Ratios:
    """Against its own incumbent; for the present incumbent also against the tuned baseline."""
    if current not in (c.id, c.against):
        return {}
    evidence = ctx.store.evidence(ctx.run.id, c.id)
    ratios, tuned = {c.against or incumbent.SHIPPED: incumbent.gains(evidence)}, incumbent.gains(evidence, "tuned")
    if tuned and (current == c.id or incumbent.SHIPPED in ratios):
        ratios[incumbent.SHIPPED] = tuned
    return ratios


def _beside(ctx: Context, c: Candidate, winner: Candidate) -> Ratios:
    """Against the present incumbent, by the gains of both, if both were measured against the same kernel."""
    if c.against != winner.against or winner.kind == "ttgir":
        return {}
    ours, theirs = (incumbent.gains(ctx.store.evidence(ctx.run.id, x.id)) for x in (c, winner))
    return {winner.id: {case: ours[case] / theirs[case] for case in ours.keys() & theirs.keys()}}


def _proposal(ctx: Context, mixed: Mixed) -> Proposal | Skipped:
    from pgo_agent.agent.moves.analysis.merge_kernels import both

    inputs_by_case, name = inputs(ctx), f"{MOVE}: {mixed.candidate.move}"
    test = condition([inputs_by_case[c] for c in mixed.wins], [inputs_by_case[c] for c in mixed.losses])
    if test is None:
        return Skipped(name, "no one or two comparisons of its arguments tell the cases that it wins from the others")
    gains = ", ".join(f"{c.split('/', 1)[1]} {mixed.ratios[c]:.3f}x" for c in (*mixed.wins, *mixed.losses))
    why = f"{mixed.candidate.move} wins some cases and loses others ({gains}); used where {test}"

    def merged() -> str:
        other = _at_its_best(incumbent.python(ctx, mixed.other), incumbent.best_known(ctx, mixed.other))
        return both(other, mixed.candidate.source, test)

    return attempted(name, why, merged, incumbent.python(ctx, mixed.other))


def inputs(ctx: Context) -> dict[str, JsonObject]:
    """Return case -> inputs of the launcher, from the plans of the kernel as shipped."""
    plans = {case: ctx.store.contents.manifest(p.bundle)["plans"] for case, p in ctx.baseline().shipped.items()}
    return {case: plans[case][case][p.choice]["inputs"] for case, p in ctx.baseline().shipped.items()}


def _at_its_best(source: str, best: Mapping[str, Best]) -> str:
    """The file with the best known configurations of all cases at every autotuned launch."""
    for i in range(len(sites(source))):
        launches = sites(source)
        configs = [b.config for b in launch_config.bases_of(launches[i], launches, best.values())][:CARRIED]
        if launches[i].autotuned and configs:
            source = with_configs(source, launches[i], configs)
    return source
