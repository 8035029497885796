"""A profile as one page that loads nothing: no scripts, no fonts, no network; it contains its styles and drawings.

`page.html.j2` is the layout; this module makes plain values for it. Names and sources are hostile: templates escape all
of them, and the page's policy forbids a browser to load anything.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pgo_agent.agent.profile import counter_figures
from pgo_agent.agent.profile.case_profile import CaseProfile, Profile
from pgo_agent.agent.profile.summary import Summary
from pgo_agent.agent.views.charts import roofline
from pgo_agent.agent.views.html import template
from pgo_agent.agent.views.profile import counters, format, terminal
from pgo_agent.agent.views.profile.timeline_layout import Bar, Lane, lanes
from pgo_agent.agent.views.profile.timeline_terminal import names, scopes
from pgo_agent.sandbox.gate.coverage import PUBLIC
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.profile.counters.types import Counters
from pgo_agent.sandbox.profile.kernel_profile import KernelProfile, Missing
from pgo_agent.sandbox.profile.static_profile import Problem, StaticProfile
from pgo_agent.sandbox.profile.timeline.types import Timeline, Waves

TALL = 40  # height of a curve
Values = JsonObject  # what the template may use


@dataclass(frozen=True)
class Table:
    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: frozenset[int]  # columns that are no figures
    bold: frozenset[int] = frozenset()  # rows


@dataclass(frozen=True)
class Drawn:
    """A bar, in percent of the longest lane."""

    bar: Bar
    label: str
    share: str
    title: str
    x: str
    width: str
    end: str
    tail: str


def render(profile: Profile, source: str, summaries: Mapping[str, Summary]) -> str:
    """Return the page. `source`: the target's text, whose lines the profile names. `summaries`: by case."""
    text = source.splitlines()
    cases = [_case(case, profile.device, text, summaries.get(case.case)) for case in profile.cases]
    return str(
        template("views/profile/page.html.j2").render(profile=profile, cases=cases, basis=terminal.basis(profile))
    )


def _case(case: CaseProfile, device: str, text: Sequence[str], summary: Summary | None) -> Values:
    r = case.roofline
    return {
        "name": case.case.removeprefix(PUBLIC),
        "configuration": case.configuration,
        "chosen": case.chosen,
        "summary": summary.text if summary else "",
        "roof": "" if isinstance(r, Missing) else format.roof(r),
        "plot": None if isinstance(r, Missing) else roofline.plot(r),
        "missing": list(format.gathered([r])) if isinstance(r, Missing) else [],
        "floor": format.floor(case.floor) if case.floor else "",
        "kernels": [_kernel(k, case, device, text) for k in case.kernels],
    }


def _kernel(k: KernelProfile, case: CaseProfile, device: str, text: Sequence[str]) -> Values:
    s, t, c = k.static, k.timeline, k.counters
    return {
        "name": s.kernel if isinstance(s, StaticProfile) else k.kernel,
        "built": f"{s.target}, {s.instructions:,} instructions" if isinstance(s, StaticProfile) else "",
        "problem": s.reason if isinstance(s, Problem) else "",
        "facts": list(terminal.facts(k, s, device)) if isinstance(s, StaticProfile) else [],
        "live": _live(s) if isinstance(s, StaticProfile) and s.peak else None,
        "findings": case.findings.get(k.build, ()),
        "same_code": not isinstance(s, StaticProfile) or s.same_code,
        "missing": list(format.gathered(k.missing)),
        "timeline": None if isinstance(t, Missing) else timeline(k, t),
        "counters": None if isinstance(c, Missing) else _counters(c, text),
        "code": case.code.get(k.build, ""),
        "tables": _static(s, text) if isinstance(s, StaticProfile) else [],
    }


def _static(s: StaticProfile, text: Sequence[str]) -> list[Table]:
    return [
        *_listed("Loops", "lines", terminal.loops(s)),
        *_listed("Instructions by source line, innermost loop first", "line", terminal.lines(s, text)),
    ]


def _listed(title: str, name: str, rows: Sequence[terminal.Row]) -> list[Table]:
    """Return the table, in a list that is empty without rows."""
    head, *body = terminal.figures(rows)
    cells = tuple((row[0].strip(), row[1], *figures) for row, figures in zip(rows, body, strict=True))
    return [Table(title, (name, "", *head), cells, frozenset({1}))] if rows else []


def _live(s: StaticProfile) -> Values:
    """Return the curve of live registers, one unit across for each instruction, and the loops as ranges of it."""
    most = max((x or 0 for x in s.curve), default=0)
    steps = (f"L{i} {TALL - TALL * (x or 0) / most:.2f}H{i + 1}" for i, x in enumerate(s.curve))
    return {
        "curve": f"M0 {TALL}{''.join(steps)}V{TALL}Z",
        "across": len(s.curve),
        "tall": TALL,
        "most": most,
        "loops": [(m.first, m.instructions) for m in s.loops if not m.waits],
    }


# timeline -------------------------------------------------------------------------------------------------------------


def timeline(k: KernelProfile, t: Timeline, longest: float | None = None) -> Values:
    """Return the values for `lanes` of `parts.html.j2`. `longest`: cycles of the widest lane on a shared scale."""
    laid_out = lanes(t, k.static)
    longest = cycles(k) if longest is None else longest
    return {
        "lanes": [_lane(lane, longest) for lane in laid_out] if longest else [],
        "scopes": _scopes(k, laid_out),
        "path": "" if isinstance(k.chain, Missing) else format.path(k.chain, names(laid_out)),
        "waves": _waves(t.waves) if t.waves else None,
        "disturbance": list(format.disturbance(t)),
    }


def cycles(k: KernelProfile) -> float:
    """Return the cycles of the longest lane of a kernel's timeline; 0 when there is none."""
    laid_out = () if isinstance(k.timeline, Missing) else lanes(k.timeline, k.static)
    return max((lane.cycles for lane in laid_out), default=0.0)


def _lane(lane: Lane, longest: float) -> Values:
    return {"role": lane.role, "whole": format.whole(lane.whole), "bars": [_drawn(b, longest) for b in lane.bars]}


def _drawn(b: Bar, longest: float) -> Drawn:
    label = f"{b.name} x{format.number(b.turns)}" if b.turns else b.name
    title = f"{b.name}: {format.cycles(b.cycles)} cycles, {format.cycles(b.tail)} more at the P80"
    places = (f"{100 * part / longest:.3f}" for part in (b.begin, b.cycles, b.end, b.tail))
    return Drawn(b, label, format.percent(b.share), title, *places)


def _scopes(k: KernelProfile, laid_out: Iterable[Lane]) -> Table:
    head, rows = scopes(k, laid_out)
    cells = (("\N{EM SPACE}" * depth + name, *row, *[""] * (len(head) - len(row))) for depth, name, row in rows)
    bold = frozenset(i for i, (depth, *_) in enumerate(rows) if not depth)
    return Table("Cycles of one execution, by scope", ("scope", *head), tuple(cells), frozenset({0}), bold)


def _waves(w: Waves) -> Values:
    room = w.sms * w.resident
    steps = (f"L{i} {TALL - TALL * v / room:.2f}H{i + 1}" for i, v in enumerate(w.running))
    return {
        "facts": list(format.filled(w)),
        "curve": f"M0 {TALL}{''.join(steps)}V{TALL}Z" if w.running else "",
        "across": len(w.running),
        "tall": TALL,
        "room": format.number(room),
        "span": format.nanoseconds(w.span_ns),
    }


# counters -------------------------------------------------------------------------------------------------------------


def _counters(c: Counters, text: Sequence[str]) -> Values:
    light = dict(sorted(c.speed_of_light.items(), key=lambda x: -x[1]))
    return {
        "bars": [
            ("Of its peak", "dot", _shares(light)),
            ("Warps waited for", "wait", _shares(counter_figures.top(c.stalls))),
        ],
        "facts": list(format.counted(c)),
        "where": _where(c, text),
    }


def _shares(by_name: Mapping[str, float]) -> list[tuple[str, str, str]]:
    """Return name, text, and percent of a bar of each share."""
    return [(name, format.percent(x), f"{100 * min(1.0, x):.2f}") for name, x in by_name.items()]


def _where(c: Counters, text: Sequence[str]) -> Table:
    samples = sum(n.samples for n in c.source)
    listed = tuple(counter_figures.dearest(c))
    figures = ((str(n.line), format.percent(n.samples / samples), f"{n.executed:,}") for n in listed)
    texts = ((counters.reasons(n), text[n.line - 1].strip() if n.line <= len(text) else "") for n in listed)
    rows = tuple((*a, *b) for a, b in zip(figures, texts, strict=True))
    return Table("Where warps were seen", ("line", "share", "executed", "waiting for", ""), rows, frozenset({3, 4}))
