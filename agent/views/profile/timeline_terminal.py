"""Draws a kernel's timeline in the terminal: lanes of its roles, a table of its scopes, how its blocks filled the SMs.

A bar's shape carries the same meaning as its colour, so nothing is lost without colours. Figures are never cut: in a
narrow terminal the bars are shorter.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from pgo_agent.agent.views.profile import format
from pgo_agent.agent.views.profile.timeline_layout import Bar, Lane, lanes
from pgo_agent.sandbox.profile.kernel_profile import KernelProfile, Missing
from pgo_agent.sandbox.profile.timeline.types import Timeline, Waves
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

LOOKS = {  # family -> colour, fill of its bar in a strip, fill in a row
    "wait": ("red", "·", "█"),
    "dot": ("green", "█", "█"),
    "body": ("cyan", "▓", "█"),
    "copy": ("blue", "▒", "█"),
    "memory": ("magenta", "▒", "█"),
    "loop": ("dim", " ", "─"),
    "rest": ("dim", " ", "╌"),
}
TAIL, STEPS = "░", "▁▂▃▄▅▆▇█"
LEGEND = "█ dots  ▓ arithmetic  ▒ copies, loads, stores  · waits"
FEWEST = 12  # columns of bars
Row = tuple[int, str, tuple[str, ...]]  # depth (0: a role), name, figures; a role that was not recorded has none


def draw(k: KernelProfile, t: Timeline, out: Console) -> None:
    """Print a kernel's timeline `t`."""
    laid_out = lanes(t, k.static)
    longest = max((lane.cycles for lane in laid_out), default=0.0)
    out.print("\n[bold]timeline[/]  of one warp in a block: as long as count x P50, ░ up to the P80")
    if longest:
        _lanes(laid_out, longest, out)
        out.print(_fitting(k, laid_out, out))
        out.print()
    if not isinstance(k.chain, Missing):
        fact("critical path", format.path(k.chain, names(laid_out)), out)
    if t.waves:
        _waves(t.waves, out)
    for name, text in format.disturbance(t):
        fact(name, text, out)


def strips(k: KernelProfile, t: Timeline, width: int) -> list[Text]:
    """Return one row for each role, and a legend as the last row."""
    laid_out = lanes(t, k.static)
    longest = max((lane.cycles for lane in laid_out), default=0.0)
    return list(_strips(laid_out, longest, width)) if longest else []


def fact(name: str, text: str, out: Console) -> None:
    """Print a name, and its text in a column of its own, however long."""
    grid = Table.grid(padding=(0, 0))
    grid.add_column(width=17, no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(f"  {escape(name)}", escape(text))
    out.print(grid, highlight=False)


# lanes ----------------------------------------------------------------------------------------------------------------


def _lanes(laid_out: Sequence[Lane], longest: float, out: Console) -> None:
    for row in _strips(laid_out, longest, out.width):
        out.print(row, no_wrap=True)
    if any(lane.bars for lane in laid_out):
        columns = _Columns.of(laid_out, out.width)
        for lane in laid_out:
            _lane(lane, longest, columns, out)
    out.print()


def _strips(laid_out: Sequence[Lane], longest: float, width: int) -> Iterator[Text]:
    """Yield one row for each role, one above the other, so that they can be compared."""
    name = max(len(lane.role) for lane in laid_out) + 4
    columns = max(FEWEST, width - name - 1)
    for lane in laid_out:
        row = Text(f"  {lane.role}".ljust(name))
        for cell in _cells(lane, longest, columns):
            look = LOOKS[cell.family] if cell else ("", " ", " ")
            row.append(look[1], look[0])
        yield row
    yield Text(" " * name + LEGEND, "dim")


def _cells(lane: Lane, longest: float, columns: int) -> list[Bar | None]:
    """Return for each column the bar that takes most of it, without loops."""
    leaves = [b for b in lane.bars if b.family != "loop"]
    step = longest / columns
    cells = []
    for i in range(columns):
        within = [(min(b.end, (i + 1) * step) - max(b.begin, i * step), b) for b in leaves]
        most, bar = max(within, key=lambda w: w[0], default=(0.0, None))
        cells.append(bar if most > 0 else None)
    return cells


@dataclass(frozen=True)
class _Columns:
    """Widths, the same in all lanes."""

    name: int
    line: int
    bars: int

    @classmethod
    def of(cls, laid_out: Sequence[Lane], width: int) -> "_Columns":
        bars = [b for lane in laid_out for b in lane.bars]
        name, line = max(len(_name(b)) for b in bars), max(len(b.line) for b in bars)
        return cls(name, line, max(FEWEST, width - name - line - len("  100.0 % ") - 1))


def _lane(lane: Lane, longest: float, columns: _Columns, out: Console) -> None:
    out.print(f"\n  [bold]{escape(lane.role)}[/]  {format.whole(lane.whole)}", highlight=False)
    for b in lane.bars:
        row = f"{_name(b):<{columns.name}} {b.line:>{columns.line}}  {format.percent(b.share):>7} "
        out.print(Text(row) + _bar(b, longest, columns.bars), no_wrap=True, overflow="crop")


def _name(b: Bar) -> str:
    return f"    {'  ' * b.depth}{b.name}{f' x{format.number(b.turns)}' if b.turns else ''}"


def _bar(b: Bar, longest: float, columns: int) -> Text:
    """Return the bar at its place and length, rounded to columns; every bar takes at least one."""
    begin = min(columns - 1, round(b.begin / longest * columns))
    end = max(begin + 1, round(b.end / longest * columns))
    tail = min(columns, round((b.end + b.tail) / longest * columns))
    colour, _, full = LOOKS[b.family]
    return Text(" " * begin) + Text(full * (end - begin), colour) + Text(TAIL * (tail - end), colour)


def names(laid_out: Sequence[Lane]) -> dict[str, str]:
    """Return scope -> the name of its row, with its role when there are several."""
    several = len(laid_out) > 1
    bars = ((lane.role, b) for lane in laid_out for b in lane.bars if b.time)
    return {b.time.scope.name: f"{role + ' ' if several else ''}{b.name} {b.line}" for role, b in bars if b.time}


# scopes ---------------------------------------------------------------------------------------------------------------


def _fitting(k: KernelProfile, laid_out: Sequence[Lane], out: Console) -> Table:
    """Return the table; in a narrow terminal without the shares, which the lanes show, too."""
    whole = _table(k, laid_out)
    wanted = out.measure(whole, options=out.options.update(width=10 * out.width)).maximum
    return whole if wanted <= out.width else _table(k, laid_out, {"share"})


def _table(k: KernelProfile, laid_out: Iterable[Lane], left_out: Collection[str] = ()) -> Table:
    head, rows = scopes(k, laid_out)
    shown = [i for i, name in enumerate(head) if name not in left_out]
    table = Table(title="cycles of one execution, by scope", title_justify="left", box=None, padding=(0, 1, 0, 0))
    table.title_style = "bold"
    table.add_column("scope", no_wrap=True)
    for i in shown:
        table.add_column(head[i], justify="right", no_wrap=True)
    for depth, name, cells in rows:
        styled = Text(" " * (2 * depth - 1) + name, "" if depth else "bold")
        table.add_row(styled, *(cells[i] for i in shown if i < len(cells)))
    return table


def scopes(k: KernelProfile, laid_out: Iterable[Lane]) -> tuple[tuple[str, ...], list[Row]]:
    """Return the headings of figures, and a row for each role, followed by those of its scopes."""
    last = {"ipc": format.rates(k.ipc), "slack": format.chained(k.chain)}
    shown = {name: by_scope for name, by_scope in last.items() if by_scope}
    rows: list[Row] = []
    for lane in laid_out:
        rows.append((0, lane.role, ("", *(format.figures(lane.whole) if lane.whole else ()))))
        for b in lane.bars:
            if b.time:
                more = (by_scope.get(b.time.scope.name, "-") for by_scope in shown.values())
                rows.append((b.depth + 1, b.name, (b.line, *format.figures(b.time), *more)))
    return ("line", "P20", "P50", "P80", "count", "share", "varies", *shown), rows


# waves ----------------------------------------------------------------------------------------------------------------


def _waves(w: Waves, out: Console) -> None:
    for name, text in format.filled(w):
        fact(name, text, out)
    if w.running:
        fact("running", sparkline(w.running, w.sms * w.resident), out)


def sparkline(values: Sequence[float], most: float) -> str:
    """Return a character for each value: a blank for none, else one of eight steps up to `most`."""
    return "".join(STEPS[min(7, int(8 * v / most))] if v > 0 else " " for v in values)
