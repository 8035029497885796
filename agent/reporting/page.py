"""A report as one page that loads nothing and runs nothing: styles and drawings stand in it, as in a profile's page.

`report.html.j2` says what stands where; this makes plain values for it. Whatever a candidate, its author or the target
chose is escaped by the templates; characters that would change how a diff reads are shown by their numbers.
"""

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pgo_agent.agent.case_profile import CaseProfile
from pgo_agent.agent.reporting import plots
from pgo_agent.agent.reporting.compared import Comparison, Kernels, Resources
from pgo_agent.agent.reporting.correct import Proof
from pgo_agent.agent.reporting.facts import Report, times
from pgo_agent.agent.reporting.measured import LABELS, SHIPPED, TUNED, Case, Session
from pgo_agent.agent.reporting.plots import Forest
from pgo_agent.agent.reporting.profiles import Profiled
from pgo_agent.agent.reporting.steps import Tried
from pgo_agent.agent.reporting.visible import visible
from pgo_agent.agent.views import page, words
from pgo_agent.agent.views.markup import template
from pgo_agent.sandbox.profile.report import StaticProfile
from pgo_agent.sandbox.profile.timeline.report import Timeline
from pgo_agent.sandbox.profile.whole import KernelProfile, Missing

MOST_LINES = 2500  # of one diff; the command that prints the rest is told
Values = dict[str, Any]


def render(report: Report) -> str:
    values = {
        "report": report,
        "headline": _headline(report),
        "cases": [_case(c) for c in report.session.cases] if report.session else [],
        "table": table(report.session) if report.session else None,
        "tried": _tried(report),
        "resources": [_resources(k) for k in report.comparison.resources] if report.comparison else [],
        "source": _diff(report.comparison.source) if report.comparison else None,
        "ttgir": _ttgir(report.comparison) if report.comparison else [],
        "profiles": [_profile(p) for p in report.profiles if p.timed],
        "proofs": [_proof(p) for p in report.proofs],
        "known": known(report),
        "times": times,
        "visible": visible,
    }
    return str(template("reporting/report.html.j2").render(**values))


# times ----------------------------------------------------------------------------------------------------------------


def _headline(report: Report) -> list[tuple[str, Forest]]:
    """Baselines on one scale, libraries on another."""
    session, own = report.session, (TUNED, LABELS[SHIPPED])
    subject = session.subject if session else "winner"
    groups = [[g for g in report.gains if g.of in own], [g for g in report.gains if g.of not in own]]
    found = []
    for title, group in zip((f"{subject} against the baselines", f"{subject} against libraries"), groups, strict=True):
        rows = []
        for g in group:
            rows.append((g.of, g.interval, True))
            each = ((c.name, r.interval) for c in (session.cases if session else ()) for r in c.ratios if r.of == g.of)
            rows += [(name, i, False) for name, i in each] if g.cases > 1 else []
        drawn = plots.forest(rows, session.noise if session and group is groups[0] else None)
        found += [(title, drawn)] if drawn else []
    return found


def table(s: Session) -> page.Table:
    """Rates of every side in every case, and ratios."""
    keys = [x for x in dict.fromkeys(side.key for c in s.cases for side in c.sides) if x != "A/A"]
    ordered = [k for k in (SHIPPED, TUNED, "winner") if k in keys] + [
        k for k in keys if k not in (*LABELS, TUNED, "winner")
    ]
    ratios = list(dict.fromkeys(r.of for c in s.cases for r in c.ratios))
    head = ("case", "", *(LABELS.get(k, k) for k in ordered), *(f"{s.subject} / {of}" for of in ratios))
    rows = []
    for c in s.cases:
        rates = (f"{x.rate:.0f}" if (x := c.side(k)) else "-" for k in ordered)
        told = {r.of: times(r.interval) for r in c.ratios}
        rows.append((c.name, c.unit, *rates, *(told.get(of, "-") for of in ratios)))
    return page.Table("Rates and ratios", head, tuple(rows), frozenset({0, 1}))


def _case(c: Case) -> Values:
    return {
        "case": c,
        "strips": plots.strips(c),
        "tall": plots.TALL,
        "sides": [
            (s.label, s.choice, f"{s.median.mid:.4f}", f"{s.median.low:.4f} to {s.median.high:.4f}", f"{s.rate:.0f}",
             f"{min(s.ms):.4f}", f"{max(s.ms):.4f}", _spread(s.ms), str(len(s.ms)))
            for s in c.sides
        ],
    }  # fmt: skip


def _spread(ms: Sequence[float]) -> str:
    """Standard deviation over mean."""
    return words.percent(statistics.stdev(ms) / statistics.fmean(ms)) if len(ms) > 1 else "-"


# candidates -----------------------------------------------------------------------------------------------------------


def _tried(report: Report) -> list[Values]:
    from pgo_agent.sandbox.judge.stats import Interval

    ratios = [(t.id, t.gain or Interval(t.ratio, t.ratio, t.ratio), False) for t in report.tried if t.ratio]
    drawn = plots.forest(ratios)
    marks = {m.name: m for m in drawn.rows} if drawn else {}
    return [
        {"t": t, "mark": marks.get(t.id), "one": drawn.one if drawn else 0.0, "look": _look(t)} for t in report.tried
    ]


def _look(t: Tried) -> str:
    """Which colour its verdict has."""
    fine = {"accepted": "good", "checked": "fine", "built": "fine", "slower": "slow", "undecided": "slow"}
    return fine.get(t.verdict, "none" if t.verdict in ("no_change", "not judged") else "bad")


def known(report: Report) -> page.Table | None:
    if not report.known:
        return None
    rows = ((k.candidate[:8], k.move, k.verdict, _relative(k.relative, k.how), k.how) for k in report.known)
    return page.Table("", ("candidate", "move", "verdict", "relative time", "known from"), tuple(rows),
                      frozenset({0, 1, 2, 4}))  # fmt: skip


def _relative(x: float | None, how: str) -> str:
    mark = "~" if "estimate" in how or "partly" in how else ""
    return "-" if x is None else f"{mark}{x:.3f}"


# builds ---------------------------------------------------------------------------------------------------------------


def _resources(k: Kernels) -> Values:
    rows = (
        (r.side, r.choice, str(r.registers), f"{r.shared:,}", str(r.spills), str(r.depth), occupancy(r), r.limiter,
         r.notes or "-", f"{r.instructions:,}" if r.instructions else "-")
        for r in k.sides
    )  # fmt: skip
    head = ("", "configuration", "registers", "shared B", "spills B", "pipeline", "blocks (warps) of an SM",
            "limited by", "ptxas", "instructions")  # fmt: skip
    return {"case": k.case, "table": page.Table(k.kernel, head, tuple(rows), frozenset({0, 1, 7, 8}))}


def occupancy(r: Resources) -> str:
    return f"{r.blocks} ({r.warps} of {r.most_warps})" if r.blocks is not None else "-"


def _ttgir(found: Comparison) -> list[Values]:
    return [
        {"kernel": c.kernel, "cases": ", ".join(c.cases), "differ": c.differ, "diff": _diff(c.lines)}
        for c in found.ttgir
    ]


def _diff(lines: Sequence[str]) -> Values:
    kept = [(_kind(i, line), visible(line.rstrip("\n"))) for i, line in enumerate(lines[:MOST_LINES])]
    return {"lines": kept, "more": max(0, len(lines) - MOST_LINES), "added": _count(lines, "+"),
            "removed": _count(lines, "-")}  # fmt: skip


def _kind(i: int, line: str) -> str:
    if i < 2:
        return "name"
    return {"+": "added", "-": "removed", "@": "hunk"}.get(line[:1], "same")


def _count(lines: Iterable[str], sign: str) -> int:
    return sum(line[:1] == sign for line in list(lines)[2:])


# profiles -------------------------------------------------------------------------------------------------------------


def _profile(p: Profiled) -> Values:
    kernels = []
    for name, *sides in p.kernels:
        longest = max((page.cycles(k) for k in sides if k), default=0.0)
        pairs = zip(("as it began", "winner"), (p.before, p.after), sides, strict=True)
        drawn = [_side(title, case, k, longest) for title, case, k in pairs if case and k]
        kernels.append({"name": name, "sides": drawn})
    return {"case": p.case, "kernels": kernels, "reasons": p.reasons}


def _side(title: str, case: CaseProfile, k: KernelProfile, longest: float) -> Values:
    t = k.timeline
    return {
        "title": title,
        "configuration": case.configuration,
        "timeline": page.timeline(k, t, longest) if isinstance(t, Timeline) else None,
        "why": t.why if isinstance(t, Missing) else "",
        "facts": list(_facts(case, k)),
    }


def _facts(case: CaseProfile, k: KernelProfile) -> Iterator[tuple[str, str]]:
    if not isinstance(case.roofline, Missing):
        yield "roof", words.roof(case.roofline)
    if isinstance(k.static, StaticProfile):
        s = k.static
        yield (
            "code",
            f"{s.instructions:,} instructions, {s.resources.registers} registers, {s.occupancy.blocks} blocks of an SM",
        )
    if not isinstance(k.counters, Missing):
        light = sorted(k.counters.speed_of_light.items(), key=lambda x: -x[1])[:3]
        yield "busiest", ", ".join(f"{name} {words.percent(x)}" for name, x in light)


# evidence -------------------------------------------------------------------------------------------------------------


def _proof(p: Proof) -> Values:
    looks: dict[str, list[Values]] = {}
    for c in p.comparisons:
        under = f"{c.case} with {c.strain}" if c.strain else c.case
        share = min(100.0, 100 * c.share)
        looks.setdefault(c.look, []).append(
            {"case": under, "output": c.output, "seed": c.seed, "worst": f"{c.worst:.3g}", "mean": f"{c.mean:.3g}",
             "worst_allowed": f"{c.worst_allowed:.3g}", "mean_allowed": f"{c.mean_allowed:.3g}",
             "share": words.percent(c.share) if c.share < 1e6 else "all", "width": f"{share:.2f}",
             "problem": c.problem}
        )  # fmt: skip
    return {"p": p, "looks": looks, "told": told(p)}


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


def looks_of(p: Proof) -> Mapping[str, int]:
    """How many comparisons each look made."""
    return {look: sum(c.look == look for c in p.comparisons) for look in dict.fromkeys(c.look for c in p.comparisons)}
