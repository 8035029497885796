"""Prints the proof of a dispatch for a person: each region with its guard and its times, and what the guards take."""

from pgo_agent.agent import text
from pgo_agent.agent.run.dispatch import Proof, RegionProof
from pgo_agent.agent.views import summary
from pgo_agent.agent.views.regression import figures
from rich.console import Console
from rich.markup import escape
from rich.table import Table


def show(proof: Proof) -> None:
    out = summary.output()
    style = "bold green" if proof.proven else "yellow"
    out.print(f"[{style}]{proof.outcome}[/{style}]: the dispatch {escape(text.visible(proof.said))}", soft_wrap=True)
    for note in proof.narrowed:
        out.print(f"note: {escape(note)}", highlight=False, soft_wrap=True)
    for i, region in enumerate(proof.regions, 1):
        _region(i, region, out)
    out.print(f"elsewhere the original runs: the same launches in {_listed(proof.same)}", highlight=False)
    if proof.failing:
        out.print(f"in {_listed(tuple(proof.failing))} the original fails, and so does this", highlight=False)
    least, most = min(proof.host_us.values(), default=0.0), max(proof.host_us.values(), default=0.0)
    out.print(f"the guards take {least:.1f} to {most:.1f} microseconds on the host for each call", highlight=False)
    if proof.proven:
        out.print(f"then: pgo-agent apply {proof.run} --dispatch", highlight=False)


def _region(i: int, region: RegionProof, out: Console) -> None:
    out.print(f"region {i}: candidate {region.candidate[:8]}, {escape(region.move)}", highlight=False, soft_wrap=True)
    table = Table()
    for column in ("case or probe", "against the original"):
        table.add_column(column, overflow="fold")
    for case, ratio in region.cases.items():
        table.add_row(escape(case), figures.time(ratio) if ratio else "not timed")
    out.print(table)
    out.print(f"  if {escape(region.guard)}", highlight=False, soft_wrap=True)


def _listed(names: tuple[str, ...]) -> str:
    shown = ", ".join(escape(n) for n in names[:6])
    more = f" and {len(names) - 6} more" if len(names) > 6 else ""
    return f"{len(names)} cases and probes ({shown}{more})" if names else "no case"
