"""What `export` writes: a candidate that was accepted, or without a GPU at least checked, of a run.

It reads the record and the target's text. A target that changed since does not matter: the run keeps its candidates.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from pgo_agent.agent.commands.dispatch import command as dispatch
from pgo_agent.agent.run.dispatch import Proof
from pgo_agent.agent.run.record.candidate import Candidate
from pgo_agent.agent.run.record.run import Run
from pgo_agent.agent.run.record.store import Store
from pgo_agent.sandbox.errors import UsageFault

FIT = ("accepted", "checked")  # the better one first


@dataclass(frozen=True)
class Chosen:
    """A candidate that leaves. `proof`: of a dispatch, whose text it then has."""

    run: Run
    candidate: Candidate
    proof: Proof | None = None
    winners: tuple[Candidate, ...] = ()  # of the regions of the proof

    @property
    def name(self) -> str:
        """A name for what is written: the target's."""
        return Path(self.run.target).stem.removesuffix("_target")

    @property
    def said(self) -> list[str]:
        """What is known of it, a line each."""
        if self.proof is not None:
            return [f"Kernels of run {self.run.id} behind guards, proven on {self.proof.gpu}.", *_regions(self.proof)]
        c = self.candidate
        lines = [f"Candidate {c.id} of run {self.run.id}: {c.move}.", f"{c.verdict} at {c.stage}: {c.reason}"]
        return (
            lines if c.verdict == FIT[0] else [*lines, "It was measured on no GPU: nobody knows whether it is faster."]
        )


def dispatched(store: Store, named: str) -> Chosen:
    """Return what `pgo-agent dispatch` has proven of a run. Raises UsageFault where it has proven nothing."""
    if "/" in named:
        raise UsageFault("--dispatch is of all winners of a run", "name the run alone")
    proof, text = dispatch.kept(store, store.run(named).id)
    winners = tuple(store.candidate(proof.run, r.candidate) for r in proof.regions)
    return Chosen(store.run(proof.run), replace(winners[0], source=text), proof, winners)


def _regions(proof: Proof) -> list[str]:
    """Return a line for each region: what was timed there against the original."""
    timed = [(r.move, [f"{c} {x[1]:.3f}x" for c, x in r.cases.items() if x]) for r in proof.regions]
    return [f"{move}: {', '.join(cases)} of the original" for move, cases in timed]


def of(store: Store, named: str) -> Chosen:
    """Return what RUN or RUN/CANDIDATE names: without a candidate the last accepted one, else the last checked one.

    Raises UsageFault for one that is neither, for TTGIR, and where there is none.
    """
    name, _, wanted = named.partition("/")
    run = store.run(name or "last")
    if wanted:
        candidate = store.candidate(run.id, wanted)
    else:
        ranked = [c for verdict in FIT for c in reversed(store.candidates(run.id)) if c.verdict == verdict]
        fit = [c for c in ranked if c.kind != "ttgir"] or ranked
        if not fit:
            raise UsageFault(
                f"run {run.id} has no candidate that was accepted, or checked without a GPU",
                f"`pgo-agent show {run.id}` says what was tried; the kernel as shipped is in your own file",
            )
        candidate = fit[0]
    if candidate.verdict not in FIT:
        raise UsageFault(
            f"candidate {candidate.id} is {candidate.verdict or 'not judged'}: nothing that may be wrong is exported",
            f"`pgo-agent show {run.id}` lists those that are accepted or checked",
        )
    if candidate.kind == "ttgir":
        raise UsageFault(
            f"candidate {candidate.id} is TTGIR, which no Triton source says",
            f"`pgo-agent show {run.id} {candidate.id[:8]} --source` prints it, for `ir_override=` of a launch",
        )
    return Chosen(run, candidate)
