"""A report as one page that loads nothing and runs nothing: it contains its styles and drawings, as a profile's page.

`report.html.j2` is the layout; this module makes plain values for it. Templates escape all text from candidates,
authors and targets; characters that would change how a diff reads are shown by their numbers.
"""

import statistics
from collections.abc import Iterable, Iterator, Sequence

from pgo_agent.agent.profile.case_profile import CaseProfile
from pgo_agent.agent.text import visible
from pgo_agent.agent.views.charts import samples
from pgo_agent.agent.views.charts.samples import Forest
from pgo_agent.agent.views.html import template
from pgo_agent.agent.views.profile import format, page
from pgo_agent.agent.views.report import text
from pgo_agent.agent.views.report.collect import Report, times
from pgo_agent.agent.views.report.comparison import Comparison, Kernels
from pgo_agent.agent.views.report.correctness import Proof
from pgo_agent.agent.views.report.lineage import NOT_JUDGED, Tried
from pgo_agent.agent.views.report.profiles import AFTER, BEFORE, Profiled
from pgo_agent.agent.views.report.timings import BASELINES, Case
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.judge.timing.bootstrap import Interval
from pgo_agent.sandbox.profile.kernel_profile import KernelProfile, Missing
from pgo_agent.sandbox.profile.static_profile import StaticProfile
from pgo_agent.sandbox.profile.timeline.types import Timeline

MOST_LINES = 2500  # of one diff; the page names the command that prints the rest
LONG = 120  # lines from which a diff is folded at first
Values = JsonObject


def render(report: Report) -> str:
    values = {
        "report": report,
        "headline": _headline(report),
        "cases": [_case(c) for c in report.session.cases] if report.session else [],
        "table": text.table(report.session) if report.session else None,
        "tried": _tried(report),
        "resources": [_resources(k) for k in report.comparison.resources] if report.comparison else [],
        "source": _diff(report.comparison.source) if report.comparison else None,
        "ttgir": _ttgir(report.comparison) if report.comparison else [],
        "profiles": [_profile(p) for p in report.profiles if p.timed],
        "proofs": [_proof(p) for p in report.proofs],
        "ranking": text.ranking(report),
        "times": times,
        "unfit": text.unfit(report),
    }
    return str(template("views/report/report.html.j2", visible).render(**values))


# times ----------------------------------------------------------------------------------------------------------------


def _headline(report: Report) -> list[tuple[str, Forest]]:
    """Return forest plots with their titles: baselines on one scale, libraries on another."""
    session, baselines = report.session, BASELINES
    subject = session.subject if session else "winner"
    groups = [[g for g in report.gains if g.of in baselines], [g for g in report.gains if g.of not in baselines]]
    plots = []
    for title, group in zip((f"{subject} against the baselines", f"{subject} against libraries"), groups, strict=True):
        rows = []
        for g in group:
            rows.append((g.of, g.interval, True))
            each = ((c.name, r.interval) for c in (session.cases if session else ()) for r in c.ratios if r.of == g.of)
            rows += [(name, i, False) for name, i in each] if g.cases > 1 else []
        drawn = samples.forest(rows, session.noise if session and group is groups[0] else None)
        plots += [(title, drawn)] if drawn else []
    return plots


def _case(c: Case) -> Values:
    return {
        "case": c,
        "strips": samples.strips(c),
        "tall": samples.TALL,
        "sides": [
            (s.label, s.choice, f"{s.median.mid:.4f}", f"{s.median.low:.4f} to {s.median.high:.4f}",
             format.short(s.rate), f"{min(s.ms):.4f}", f"{max(s.ms):.4f}", _spread(s.ms), str(len(s.ms)))
            for s in c.sides
        ],
    }  # fmt: skip


def _spread(ms: Sequence[float]) -> str:
    """Return standard deviation over mean."""
    return format.percent(statistics.stdev(ms) / statistics.fmean(ms)) if len(ms) > 1 else "-"


# candidates -----------------------------------------------------------------------------------------------------------


def _tried(report: Report) -> list[Values]:
    ratios = [(t.id, t.gain or Interval(t.ratio, t.ratio, t.ratio), False) for t in report.tried if t.ratio]
    drawn = samples.forest(ratios)
    marks = {m.name: m for m in drawn.rows} if drawn else {}
    return [
        {"t": t, "mark": marks.get(t.id), "one": drawn.one if drawn else 0.0, "look": _look(t)} for t in report.tried
    ]


def _look(t: Tried) -> str:
    """Return the colour class of a candidate's verdict."""
    fine = {
        "accepted": "good",
        "not_slower": "good",
        "checked": "fine",
        "built": "fine",
        "slower": "slow",
        "undecided": "slow",
    }
    return fine.get(t.verdict, "none" if t.verdict in ("no_change", NOT_JUDGED) else "bad")


# builds ---------------------------------------------------------------------------------------------------------------


def _resources(k: Kernels) -> Values:
    rows = (
        (r.side, r.choice, str(r.registers), f"{r.shared:,}", str(r.spills), str(r.depth), text.occupancy(r),
         r.limiter, r.notes or "-", f"{r.instructions:,}" if r.instructions else "-")
        for r in k.sides
    )  # fmt: skip
    head = ("", "configuration", "registers", "shared B", "spills B", "pipeline", "resident on an SM",
            "limited by", "ptxas", "instructions")  # fmt: skip
    return {"case": k.case, "table": page.Table(k.kernel, head, tuple(rows), frozenset({0, 1, 7, 8}))}


def _ttgir(comparison: Comparison) -> list[Values]:
    return [
        {"kernel": c.kernel, "cases": ", ".join(c.cases), "differ": c.differ, "diff": _diff(c.lines)}
        for c in comparison.ttgir
    ]


def _diff(lines: Sequence[str]) -> Values:
    shown = [(_kind(i, line), line.rstrip("\n")) for i, line in enumerate(lines[:MOST_LINES])]
    more, added, removed = max(0, len(lines) - MOST_LINES), _count(lines, "+"), _count(lines, "-")
    return {"long": len(lines) > LONG, "lines": shown, "more": more, "added": added, "removed": removed}


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
        pairs = zip((BEFORE, AFTER), (p.before, p.after), sides, strict=True)
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
        yield "roof", format.roof(case.roofline)
    if isinstance(k.static, StaticProfile):
        s = k.static
        room = f"{s.resources.registers} registers, {text.blocks(s.occupancy.blocks)} an SM"
        yield "code", f"{s.instructions:,} instructions, {room}"
    if not isinstance(k.counters, Missing):
        light = sorted(k.counters.speed_of_light.items(), key=lambda x: -x[1])[:3]
        yield "busiest", ", ".join(f"{name} {format.percent(x)}" for name, x in light)


# evidence -------------------------------------------------------------------------------------------------------------


def _proof(p: Proof) -> Values:
    looks: dict[str, list[Values]] = {}
    for c in p.comparisons:
        share = min(100.0, 100 * c.share)
        looks.setdefault(c.look, []).append(
            {"case": c.under, "output": c.output, "seed": c.seed, "worst": f"{c.worst:.3g}", "mean": f"{c.mean:.3g}",
             "worst_allowed": f"{c.worst_allowed:.3g}", "mean_allowed": f"{c.mean_allowed:.3g}",
             "share": format.percent(c.share) if c.share < 1e6 else "all", "width": f"{share:.2f}",
             "problem": c.problem}
        )  # fmt: skip
    return {"p": p, "looks": looks, "evidence": text.evidence(p)}
