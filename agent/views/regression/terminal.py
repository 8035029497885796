"""Prints a comparison of two revisions for a person: the verdict in one line, then the code and the times."""

from pgo_agent.agent import text
from pgo_agent.agent.run.regression import Outcome, Result
from pgo_agent.agent.views.regression import figures
from rich.console import Console
from rich.markup import escape
from rich.table import Table

_STYLE = {
    Outcome.SAME_CODE: "bold green",
    Outcome.NOT_SLOWER: "bold green",
    Outcome.RIGHT: "green",
    Outcome.UNDECIDED: "yellow",
}


def show(result: Result, out: Console) -> None:
    style = {str(k): v for k, v in _STYLE.items()}.get(result.outcome, "red")
    because = f" (stage {result.stage}: {result.reason})" if result.reason else ""
    said = escape(text.visible(f"{result.file} {result.said}{because}"))
    out.print(f"[{style}]{result.outcome}[/{style}]: {said}", highlight=False, soft_wrap=True)
    if result.covered:
        out.print(f"covered: {escape(result.covered)}", highlight=False, soft_wrap=True)
    _code(result, out)
    _times(result, out)
    if result.run:
        shown = f"pgo-agent show {result.run} {result.candidate[:8]}"
        compare = f"   pgo-agent diff shipped {result.candidate[:8]} --run {result.run} --ttgir" if result.code else ""
        out.print(f"more: {shown}{compare}", highlight=False)


def _code(result: Result, out: Console) -> None:
    if said := figures.compared(result.code):
        out.print(f"code: {said}", highlight=False)
    if result.code is None or not result.code.changes:
        return
    table = Table(title="what differs in the public cases", title_justify="left")
    for column in figures.HEAD:
        table.add_column(column, overflow="fold")
    for change in result.code.changes[: figures.SHOWN]:
        table.add_row(*(escape(text.line(cell)) for cell in figures.cells(change)))
    out.print(table)
    if more := len(result.code.changes) - figures.SHOWN:
        out.print(f"and {more} more", highlight=False) if more > 0 else None


def _times(result: Result, out: Console) -> None:
    if result.speedup is None:
        return
    table = Table(title=f"times on {result.device}, by one session", title_justify="left")
    for column in ("case", "FILE against BASE"):
        table.add_column(column)
    for case, ratio in result.cases.items():
        table.add_row(escape(case), figures.time(ratio))
    table.add_row("all cases", figures.time(result.speedup))
    if result.again:
        table.add_row("all cases, a second session", figures.time(result.again))
    if result.noise:
        table.add_row("BASE against itself", figures.itself(result.noise))
    out.print(table)
