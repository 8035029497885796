"""Draws Nsight Compute's counters in the terminal: units against their peaks, why warps waited, and where."""

from collections.abc import Mapping, Sequence

from pgo_agent.agent.profile.counter_figures import dearest, readable, top
from pgo_agent.agent.views.profile import format
from pgo_agent.agent.views.profile.timeline_terminal import fact
from pgo_agent.sandbox.profile.counters.types import Counters, LineCounters
from pgo_agent.sandbox.profile.pseudocode import ISSUED
from rich.console import Console
from rich.table import Table
from rich.text import Text

BAR = 30  # columns of a full bar


def draw(c: Counters, text: Sequence[str], out: Console) -> None:
    """Print the counters. `text`: lines of the file that holds the kernel."""
    out.print("\n[bold]counters[/]")
    _bars("of its peak", dict(sorted(c.speed_of_light.items(), key=lambda x: -x[1])), "green", out)
    _bars("warps waited for", top(c.stalls), "red", out)
    for name, figures in format.counted(c):
        fact(name, figures, out)
    if where := tuple(dearest(c)):
        out.print()
        out.print(_where(where, sum(n.samples for n in c.source), text, out.width))


def reasons(n: LineCounters, most: int = 2) -> str:
    """Return why warps waited at a line, with the shares of its samples."""
    commonest = sorted(((r, x) for r, x in n.stalls.items() if r != ISSUED), key=lambda x: -x[1])[:most]
    return ", ".join(f"{readable(reason)} {format.percent(count / n.samples)}" for reason, count in commonest if count)


def _bars(title: str, shares: Mapping[str, float], colour: str, out: Console) -> None:
    name = max(map(len, shares), default=0)
    for i, (what, share) in enumerate(shares.items()):
        row = Text(f"  {title if i == 0 else '':<18}{what:<{name}} {format.percent(share):>8} ")
        full = min(BAR, round(share * BAR))
        out.print(row + Text("█" * full, colour) + Text("·" * (BAR - full), "dim"), no_wrap=True, overflow="crop")


def _where(dearest_lines: Sequence[LineCounters], samples: int, text: Sequence[str], width: int) -> Table:
    """Return the table of source lines; without room the statement is cut, never a figure."""
    rows = [(str(n.line), format.percent(n.samples / samples), reasons(n, 1)) for n in dearest_lines]
    left = width - sum(1 + max(map(len, column)) for column in zip(*rows, strict=True)) - 3
    table = Table(title="where warps were seen", title_justify="left", box=None, padding=(0, 1, 0, 0))
    table.title_style = "bold"
    table.add_column("line", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    table.add_column("waiting for", no_wrap=True)
    table.add_column("", no_wrap=True, overflow="ellipsis", max_width=left)
    for n, row in zip(dearest_lines, rows, strict=True):
        table.add_row(*row, Text(text[n.line - 1].strip() if n.line <= len(text) else ""))
    return table
