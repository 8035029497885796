"""Texts that the page and the Markdown share: tables of rates, what is known without a GPU, the evidence."""

from collections.abc import Iterator

from pgo_agent.agent.run.shipped_configurations import AUTOTUNED
from pgo_agent.agent.views import summary
from pgo_agent.agent.views.profile import format
from pgo_agent.agent.views.profile.page import Table
from pgo_agent.agent.views.profile.timeline_layout import lanes
from pgo_agent.agent.views.profile.timeline_terminal import names
from pgo_agent.agent.views.report.collect import Report, times
from pgo_agent.agent.views.report.comparison import Resources
from pgo_agent.agent.views.report.correctness import Proof
from pgo_agent.agent.views.report.profiles import AFTER, BEFORE, Profiled
from pgo_agent.agent.views.report.timings import BASELINES, LABELS, SHIPPED, TUNED, Session, short
from pgo_agent.sandbox.profile.kernel_profile import Missing
from pgo_agent.sandbox.profile.timeline.types import Timeline


def table(s: Session) -> Table:
    """Return the table of rates of every side in every case, and ratios to the baselines."""
    keys = [x for x in dict.fromkeys(side.key for c in s.cases for side in c.sides) if x != "A/A"]
    first = (SHIPPED, AUTOTUNED, TUNED, "winner")
    ordered = [k for k in first if k in keys] + [k for k in keys if k not in first]
    ratios = list(dict.fromkeys(r.of for c in s.cases for r in c.ratios if r.of in BASELINES))
    head = ("case", "", *(LABELS.get(k, k) for k in ordered), *(f"{s.subject} / {of}" for of in ratios))
    rows = []
    for c in s.cases:
        rates = (format.short(x.rate) if (x := c.side(k)) else "-" for k in ordered)
        ratio_of = {r.of: times(r.interval) for r in c.ratios}
        rows.append((c.name, c.unit, *rates, *(ratio_of.get(of, "-") for of in ratios)))
    return Table("Rates and ratios", head, tuple(rows), frozenset({0, 1}))


def unfit(report: Report) -> Table | None:
    """Return the table of the file's own configurations that no baseline uses; None without any."""
    if not report.unfit:
        return None
    rows = ((short(u.case), u.said, f"{u.ms:.4g}" if u.ms else "-", u.why) for u in report.unfit)
    return Table("", ("case", "configuration", "ms", "why"), tuple(rows), frozenset({0, 1, 3}))


def ranking(report: Report) -> Table | None:
    if not report.ranking:
        return None
    rows = ((k.candidate[:8], k.move, k.verdict, summary.relative(k.relative, k.how), k.how) for k in report.ranking)
    head = ("candidate", "move", "verdict", "relative time", "known from")
    return Table("", head, tuple(rows), frozenset({0, 1, 2, 4}))


def occupancy(r: Resources) -> str:
    """Describe the blocks that an SM holds at a time, and their warps of its most."""
    return "-" if r.blocks is None else f"{blocks(r.blocks)}, {r.warps} of {r.most_warps} warps"


def blocks(n: int) -> str:
    return f"{n} block{'s' * (n != 1)}"


def paths(p: Profiled) -> Iterator[tuple[str, str, str, str]]:
    """Yield name, side, cycles and critical path of each timed kernel of a case, before and after."""
    for name, *sides in p.kernels:
        for title, k in zip((BEFORE, AFTER), sides, strict=True):
            if k is not None and isinstance(k.timeline, Timeline):
                laid_out = lanes(k.timeline, k.static)
                whole = ", ".join(f"{lane.role} {format.whole(lane.whole)}" for lane in laid_out)
                path = k.chain.why if isinstance(k.chain, Missing) else format.path(k.chain, names(laid_out))
                yield name, title, whole, path


def evidence(p: Proof) -> list[tuple[str, str]]:
    """Return the evidence in short, as names and texts."""
    entries = [("comparisons", _compared(p))] if p.comparisons else []
    if p.yardsticks:
        entries.append(("yardstick", f"what the reference errs in {p.yardsticks}"))
    if p.by_shipped:
        entries.append(("allowed, too", f"what the kernel as shipped errs on the same inputs: {p.by_shipped}"))
    if p.covered:
        entries.append(("covered", p.covered))
    if p.dropped:
        entries.append(("stress inputs left out", "; ".join(f"{s} on {c}: {why}" for c, s, why in p.dropped)))
    entries += [(s.name, s.reason) for s in p.stages if s.name in ("race", "launches", "memcheck", "assembler")]
    if confirm := p.stage("confirm"):
        entries.append(("confirmed", f"in a fresh process with new seeds: {confirm.reason}"))
    if p.noise:
        entries.append(("noise", f"the incumbent against itself in the same session: {p.noise}"))
    if p.disturbed:
        entries.append(("thrown away", f"{len(p.disturbed)} lots of samples: {'; '.join(p.disturbed)}"))
    return entries


def _compared(p: Proof) -> str:
    worst = p.worst
    most = ""
    if worst:
        place = f"{worst.under}, output {worst.output}"
        most = f"; the largest error is {format.percent(worst.share)} of its bound ({place})"
    number = f"{p.under_stress} stress inputs" if p.under_stress > 1 else "a stress input"
    stressed = f", under {number} too" if p.under_stress else ""
    return (
        f"{len(p.comparisons)} outputs against the float64 reference: {p.cases} cases, {p.seeds} seeds{stressed}{most}"
    )
