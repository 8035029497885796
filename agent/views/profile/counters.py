"""Draws in the terminal what Nsight Compute counted: units against their peaks, why warps waited, and where."""

from collections.abc import Iterator, Mapping, Sequence

from pgo_agent.agent.views.profile import format
from pgo_agent.agent.views.profile.timeline_terminal import fact
from pgo_agent.sandbox.profile.counters.types import Counters, LineCounters
from pgo_agent.sandbox.profile.pseudocode import ISSUED
from rich.console import Console
from rich.table import Table
from rich.text import Text

REASONS, LINES = 6, 6  # that are shown
BAR = 30  # columns of a whole one


def draw(c: Counters, text: Sequence[str], out: Console) -> None:
    """`text`: lines of the file that the kernel stands in."""
    out.print("\n[bold]counters[/]")
    _bars("of its peak", dict(sorted(c.speed_of_light.items(), key=lambda x: -x[1])), "green", out)
    _bars("warps waited for", top(c.stalls), "red", out)
    for name, said in format.counted(c):
        fact(name, said, out)
    if where := tuple(dearest(c)):
        out.print()
        out.print(_where(where, sum(n.samples for n in c.source), text, out.width))


def top(stalls: Mapping[str, float]) -> dict[str, float]:
    """The commonest reasons of waiting."""
    waits = ((said(r), x) for r, x in stalls.items() if r != ISSUED)
    return dict(sorted(waits, key=lambda x: -x[1])[:REASONS])


def dearest(c: Counters) -> Iterator[LineCounters]:
    """Source lines at which warps were seen most."""
    yield from sorted((n for n in c.source if n.line and n.samples), key=lambda n: -n.samples)[:LINES]


def reasons(n: LineCounters, most: int = 2) -> str:
    """Why warps waited at a line, with the share of its samples."""
    found = sorted(((r, x) for r, x in n.stalls.items() if r != ISSUED), key=lambda x: -x[1])[:most]
    return ", ".join(f"{said(reason)} {format.percent(count / n.samples)}" for reason, count in found if count)


def said(reason: str) -> str:
    return reason.replace("_", " ")


def _bars(title: str, shares: Mapping[str, float], colour: str, out: Console) -> None:
    name = max(map(len, shares), default=0)
    for i, (what, share) in enumerate(shares.items()):
        row = Text(f"  {title if i == 0 else '':<18}{what:<{name}} {format.percent(share):>8} ")
        full = min(BAR, round(share * BAR))
        out.print(row + Text("█" * full, colour) + Text("·" * (BAR - full), "dim"), no_wrap=True, overflow="crop")


def _where(found: Sequence[LineCounters], samples: int, text: Sequence[str], width: int) -> Table:
    """What there is no room for is the statement, never a figure."""
    rows = [(str(n.line), format.percent(n.samples / samples), reasons(n, 1)) for n in found]
    left = width - sum(1 + max(map(len, column)) for column in zip(*rows, strict=True)) - 3
    table = Table(title="where warps were seen", title_justify="left", box=None, padding=(0, 1, 0, 0))
    table.title_style = "bold"
    table.add_column("line", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    table.add_column("waiting for", no_wrap=True)
    table.add_column("", no_wrap=True, overflow="ellipsis", max_width=left)
    for n, row in zip(found, rows, strict=True):
        table.add_row(*row, Text(text[n.line - 1].strip() if n.line <= len(text) else ""))
    return table
