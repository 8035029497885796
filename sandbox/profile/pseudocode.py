"""A kernel's TTGIR as pseudo-code, with what each line costs beside it.

Names and source lines come from a trace with locations, instructions from the static profile. Where clocks inside of
the kernel were read, the line that a scope begins with says how long one execution of it takes (P50) and its share of
its role; where warps were sampled, each line says the share of the samples in which a warp waited there, and for what.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from pgo_agent.sandbox.profile import memo, static
from pgo_agent.sandbox.profile.backend import Subject, Workbench
from pgo_agent.sandbox.profile.counters.types import Counters
from pgo_agent.sandbox.profile.static_profile import Problem, StaticProfile
from pgo_agent.sandbox.profile.timeline.find_scopes import Kind
from pgo_agent.sandbox.profile.timeline.types import ScopeTime, Timeline
from pgo_agent.sandbox.ttgir import reader
from pgo_agent.sandbox.ttgir.pseudocode.view import WIDTH, Readable, readable

ISSUED = "selected"  # a sample of a warp that waited for nothing
LEAST = 0.005  # of all samples: fewer are not worth a note
COLUMNS = (("instr", 6), ("P50", 10), ("share", 8), ("stalls", 8))  # what notes say, right-aligned
HEAD = "".join(f"{name:>{width}}" for name, width in COLUMNS)
_COUNT = re.compile(r"  ( *\d+ instr)$")  # all that stands beside a line where nothing was launched


@memo.kept("pgo_agent.sandbox.profile.pseudocode.pseudocode", version=4)
def pseudocode(
    bench: Workbench, subject: Subject, timeline: Timeline | None = None, counters: Counters | None = None
) -> str:
    """Return the text, at most 120 columns wide, with the costs of each line beside it. Empty for a kernel that does
    not compile. Raises Unreadable for a TTGIR that Triton did not print, and what `static.static` raises.
    """
    profile = static.static(bench, subject, "nvidia")
    if isinstance(profile, Problem):
        return ""
    files = (bench.contents.build(subject.build) or {})["kernel"]["files"]
    module = reader.parse(bench.contents.get(files["ttgir"], "ttgir").decode())
    located = reader.parse(subject.origin.located.read(bench.contents).decode()) if subject.origin else None
    view = readable(module, located)
    counts = instructions(view.labels(), profile)
    if timeline is None and counters is None:
        digits = max((len(str(count)) for count in counts.values()), default=0)
        return view.text({label: f"{count:>{digits}} instr" for label, count in counts.items()})
    return annotated(view, counts, timeline.scopes if timeline else (), counters)


def annotated(view: Readable, counts: Mapping[str, int], scopes: Iterable[ScopeTime], counters: Counters | None) -> str:
    """Return all lines with their figures in columns, under a line that names these. `counts`: instructions by
    label."""
    labels = view.labels()
    times, waits = timed(labels, scopes), stalled(labels, counters)
    costs = ({label: str(count) for label, count in counts.items()}, *times, *waits)
    notes = {label: _note([c.get(label, "") for c in costs]) for label in dict.fromkeys(chain(*costs))}
    column = max(map(len, notes.values()), default=0)
    return f"{'':<{WIDTH - column}}{HEAD}\n{view.text(notes)}"


def apart(text: str) -> list[tuple[str, str]]:
    """Return each row of a text that this module wrote as its code and the costs beside it; the head, which names
    costs, is left out."""
    head, *rest = text.splitlines() or [""]
    rows = rest if head.endswith(HEAD) else text.splitlines()
    if head.endswith(HEAD):
        column = WIDTH - (len(head) - len(HEAD))
    else:
        column = max((len(m[1].lstrip()) for row in rows if (m := _COUNT.search(row))), default=-2)
    width = WIDTH - column - 2
    return [(row[:width].rstrip(), row[width + 2 :]) for row in rows]


def together(rows: Sequence[tuple[str, str]], named: bool) -> str:
    """Return rows of code with costs beside them as one text. `named`: under a line that names these."""
    width = WIDTH - max((len(cost) for _, cost in rows), default=0) - 2
    head = f"{'':<{width + 2}}{HEAD}\n" if named else ""
    return head + "".join(f"{f'{code:<{width}}  {cost}'.rstrip()}\n" for code, cost in rows)


def instructions(labels: Mapping[int, str], profile: StaticProfile) -> dict[str, int]:
    """Return the instructions of each label."""
    counts = Counter[str]()
    for line in profile.lines:
        if label := labels.get(line.line):
            counts[label] += line.instructions
    return dict(counts)


def timed(labels: Mapping[int, str], scopes: Iterable[ScopeTime]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the P50 and share of each scope, at the first line that shows something of it; of two at one line the
    longer. Roles have no line of their own.
    """
    by_label: dict[str, ScopeTime] = {}
    for s in sorted(scopes, key=lambda s: s.count * s.cycles.p50):
        span = range(s.scope.first, s.scope.last + 1)
        label = next((labels[line] for line in span if line in labels), None)
        if label and s.scope.kind not in (Kind.ROLE, Kind.EMPTY):
            by_label[label] = s
    shares = {label: f"{100 * s.share:.1f} %" for label, s in by_label.items() if s.share is not None}
    return {label: f"{s.cycles.p50:,.0f}" for label, s in by_label.items()}, shares


def stalled(labels: Mapping[int, str], counters: Counters | None) -> tuple[dict[str, str], dict[str, str]]:
    """Return the share of all samples in which a warp waited at a line, and what for in most of them."""
    by_label: dict[str, Counter[str]] = {}
    for line in counters.lines if counters else ():
        if label := labels.get(line.line):
            waits = {reason: n for reason, n in line.stalls.items() if reason != ISSUED}
            by_label.setdefault(label, Counter()).update(waits)
    samples = sum(line.samples for line in counters.lines) if counters else 0
    worth = {label: waits for label, waits in by_label.items() if waits.total() >= max(1, LEAST * samples)}
    shares = {label: f"{100 * waits.total() / samples:.1f} %" for label, waits in worth.items()}
    return shares, {label: waits.most_common(1)[0][0].replace("_", " ") for label, waits in worth.items()}


def _note(figures: list[str]) -> str:
    """In the columns that `COLUMNS` names; what is left of the figures follows them."""
    cells = (f"{figure:>{width}}" for figure, (_, width) in zip(figures, COLUMNS, strict=False))
    return f"{''.join(cells)} {' '.join(figures[len(COLUMNS) :])}".rstrip()
