"""Draws a run at a glance, for a terminal of any size: budget, best, profile, timeline, candidates.

Every row is readable without colour. A line is never wider than the terminal, and the block never higher than `height`;
the oldest candidates are left out first. It reads no record: `snapshot.py` does.
"""

from collections.abc import Iterator, Sequence

from pgo_agent.agent.run.settings import OPTIONAL_BUDGETS
from pgo_agent.agent.views import summary
from pgo_agent.agent.views.live.snapshot import Row, Snapshot
from rich.text import Text

WIDTH, HEIGHT = 60, 16  # least size of a terminal for the block; a smaller one gets one line
LABEL = 10  # columns
TALLEST = 20  # rows of the block at most
WIDE = 110  # columns from which reasons are shown, too
FEWEST = 3  # rows of candidates that a timeline leaves free
CALM = {"proposed": "", "looked at": "", "measured": "", "undecided": "yellow"}
_ASCII = str.maketrans({"─": "-", "█": "#", "▓": "=", "▒": "+", "·": ".", "░": ":", "…": "~"})


def lines(
    g: Snapshot, strips: Sequence[Text], width: int, height: int, ascii_only: bool = False, seconds: float = 0.0
) -> list[Text]:
    """Return at most `height` lines of at most `width` columns. `strips`: the incumbent's timeline, a lane each.
    `seconds`: since the record last stored the run's time.
    """
    height = min(height, TALLEST) if width > 0 else 0
    drawn = list(_lines(g, strips, width, height, seconds))[: max(0, height)]
    for line in drawn:
        if ascii_only:
            line.plain = line.plain.translate(_ASCII)
        line.truncate(width, overflow="crop" if ascii_only else "ellipsis")
    return drawn


def room(width: int, height: int) -> str:
    """Return why there is no room for the block; empty when there is."""
    if width >= WIDTH and height >= HEIGHT:
        return ""
    return f"the live block needs a terminal of {WIDTH} x {HEIGHT}, and this one is {width} x {height}"


def budgets(g: Snapshot, seconds: float = 0.0) -> str:
    """Return how much of each budget is spent. `seconds`: since the record last stored the run's time."""
    s = g.settings
    minutes = f"{(g.seconds + seconds) / 60:.1f} of {s.minutes:g} min"
    parts = [minutes, f"{g.counted} of {s.candidates} candidates", f"generation {g.generation}"]
    for name, budget in OPTIONAL_BUDGETS.items():
        amount, most = g.spent[name], getattr(s, name)
        if amount or most is not None:
            parts.append(f"{amount:.6g}{f' of {most:g}' if most is not None else ''} {budget.budget}")
    return ", ".join(parts)


def _lines(g: Snapshot, strips: Sequence[Text], width: int, height: int, seconds: float) -> Iterator[Text]:
    yield _head(g, width)
    yield _labelled("budget", budgets(g, seconds))
    yield _labelled("best", g.best)
    left = height - 3
    if g.profile and left > FEWEST + 2:
        yield _labelled("profile", g.profile)
        left -= 1
    for line in _timeline(g, strips, left - FEWEST - 1):
        yield line
        left -= 1
    yield from _candidates(g, width, left)


def _head(g: Snapshot, width: int) -> Text:
    where = g.device if g.measured else f"for {g.device}, not measured"
    text = Text.assemble(("── ", "dim"), (g.run, "bold"), f"  {g.target} ")
    fill = width - text.cell_len - len(where) - 4
    return text + Text("─" * max(2, fill), "dim") + Text(f" {where} ") + Text("──", "dim")


def _labelled(label: str, text: str) -> Text:
    return Text.assemble((label.ljust(LABEL), "dim"), text)


def _timeline(g: Snapshot, strips: Sequence[Text], most: int) -> Iterator[Text]:
    if strips and most >= 1:
        for i, strip in enumerate(strips[:most]):
            yield Text(("timeline" if not i else "").ljust(LABEL), "dim") + strip
    elif g.timeline and most >= 1:
        yield _labelled("timeline", f"none: {g.timeline}")


def _candidates(g: Snapshot, width: int, most: int) -> Iterator[Text]:
    """Yield the incumbent and the newest candidates, in the order in which they were proposed."""
    if not g.rows or most < 2:
        return
    first = [r for r in g.rows if r.id == g.incumbent]
    others = [r for r in g.rows if r.id != g.incumbent]
    shown = {r.id for r in [*first, *others[max(0, len(others) - (most - 1 - len(first))) :]]}
    rows = [r for r in g.rows if r.id in shown]
    ratio = any(r.ratio for r in rows)
    by = min(10, max(len(r.by) for r in rows))
    more = f"   ({len(rows)} of {len(g.rows)})" if len(rows) < len(g.rows) else ""
    note = "   [x]: recorded earlier, on such a GPU" if any(r.ratio.startswith("[") for r in rows) else ""
    head = f"{'candidate':<{LABEL}}gen {'by':<{by}} {'verdict':<11} {'ratio    ' if ratio else ''}move{more}{note}"
    yield Text(head, "dim")
    for r in rows:
        yield _row(r, by, ratio, r.id == g.incumbent, width)


def _row(r: Row, by: int, ratio: bool, incumbent: bool, width: int) -> Text:
    style = CALM.get(r.verdict, summary.STYLE.get(r.verdict, "red"))
    text = Text(f"{r.id[:8]}{' *' if incumbent else '  '}{r.generation:>3} {r.by[:by]:<{by}} ")
    text.append(f"{r.verdict:<11} ", style)
    text.append(f"{f'{r.ratio:<8} ' if ratio else ''}{r.move}")
    if width >= WIDE and r.reason:
        text.append(f"  {r.reason}", "dim")
    return text
