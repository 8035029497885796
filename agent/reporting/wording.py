"""What the page and the Markdown say in the same words: tables of rates, what is known without a GPU, the evidence."""

from pgo_agent.agent.reporting.compared import Resources
from pgo_agent.agent.reporting.correct import Proof
from pgo_agent.agent.reporting.facts import Report, times
from pgo_agent.agent.reporting.measured import LABELS, SHIPPED, TUNED, Session
from pgo_agent.agent.views import words
from pgo_agent.agent.views.page import Table


def table(s: Session) -> Table:
    """Rates of every side in every case, and ratios."""
    keys = [x for x in dict.fromkeys(side.key for c in s.cases for side in c.sides) if x != "A/A"]
    ordered = [k for k in (SHIPPED, TUNED, "winner") if k in keys] + [
        k for k in keys if k not in (*LABELS, TUNED, "winner")
    ]
    ratios = list(dict.fromkeys(r.of for c in s.cases for r in c.ratios))
    head = ("case", "", *(LABELS.get(k, k) for k in ordered), *(f"{s.subject} / {of}" for of in ratios))
    rows = []
    for c in s.cases:
        rates = (words.short(x.rate) if (x := c.side(k)) else "-" for k in ordered)
        told = {r.of: times(r.interval) for r in c.ratios}
        rows.append((c.name, c.unit, *rates, *(told.get(of, "-") for of in ratios)))
    return Table("Rates and ratios", head, tuple(rows), frozenset({0, 1}))


def known(report: Report) -> Table | None:
    if not report.known:
        return None
    rows = ((k.candidate[:8], k.move, k.verdict, _relative(k.relative, k.how), k.how) for k in report.known)
    head = ("candidate", "move", "verdict", "relative time", "known from")
    return Table("", head, tuple(rows), frozenset({0, 1, 2, 4}))


def _relative(x: float | None, how: str) -> str:
    mark = "~" if "estimate" in how or "partly" in how else ""
    return "-" if x is None else f"{mark}{x:.3f}"


def occupancy(r: Resources) -> str:
    return f"{r.blocks} ({r.warps} of {r.most_warps})" if r.blocks is not None else "-"


def told(p: Proof) -> list[tuple[str, str]]:
    """The evidence in short: a name, and what is said under it."""
    found = [("comparisons", _compared(p))] if p.comparisons else []
    if p.dropped:
        found.append(("strains left out", "; ".join(f"{s} on {c}: {why}" for c, s, why in p.dropped)))
    found += [(s.name, s.reason) for s in p.stages if s.name in ("race", "launches", "memcheck", "second assembler")]
    if confirm := p.stage("confirm"):
        found.append(("confirmed", f"in a fresh process with new seeds: {confirm.reason}"))
    if p.noise:
        found.append(("noise", f"the incumbent against itself in the same session: {p.noise}"))
    if p.disturbed:
        found.append(("thrown away", f"{len(p.disturbed)} lots of samples: {'; '.join(p.disturbed)}"))
    return found


def _compared(p: Proof) -> str:
    worst = p.worst
    most = ""
    if worst:
        where = f"{worst.case} with {worst.strain}" if worst.strain else worst.case
        most = f"; the largest error is {words.percent(worst.share)} of its bound ({where}, output {worst.output})"
    strains = f", under {p.strained} strains too" if p.strained > 1 else ", under a strain too" if p.strained else ""
    return (
        f"{len(p.comparisons)} outputs against the float64 reference: {p.cases} cases, {p.seeds} seeds{strains}{most}"
    )
