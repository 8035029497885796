"""Prints the result of a run on stdout, and formats verdicts and figures for all that is printed.

It relies on the summary in the last event. `progress.py` shows a run while it goes on.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pgo_agent.agent.evaluation import coverage_text
from pgo_agent.agent.run import shipped_configurations
from pgo_agent.agent.run.record.baseline import TimeSource
from pgo_agent.agent.run.record.run_summary import FailedRun, KnownRate, MeasuredRun, RankedRun, RunSummary, no_time
from pgo_agent.agent.run.shipped_configurations import AUTOTUNED
from rich.console import Console
from rich.markup import escape
from rich.table import Table

PIPED_WIDTH = 130  # columns of a table that goes to a file
STYLE = {
    "accepted": "bold green",
    "not_slower": "bold green",
    "checked": "green",
    "built": "cyan",
    "slower": "yellow",
} | dict.fromkeys(("no_change", "vetoed"), "dim")

_MEANING = {  # of a given file
    "accepted": "is right, and faster than the target",
    "slower": "is right, and not faster than the target",
    "not_slower": "is right, and not slower",
    "no_change": "is right, and no other code than the target has",
    "checked": "is right as far as can be told without a GPU",
    "built": "compiles, and could not be checked enough here to be called right",
    "undecided": "could not be decided",
    "wrong": "gives wrong results",
    "race": "can give other results from run to run",
    "deadlock": "waits for what never comes",
    "timeout": "does not end in time",
    "crashed": "crashes",
    "build_error": "does not build",
    "rejected": "does what a candidate may not",
    "cheating": "games the measurement",
}


def output() -> Console:
    """Return a console on stdout: as wide as the terminal, or a fixed width for a file."""
    return Console() if sys.stdout.isatty() else Console(width=PIPED_WIDTH)


def meaning(verdict: str, stage: str = "", against: str = "") -> str:
    """Return what a verdict says about a given file; `against`: a kernel that it must not be slower than."""
    if against:
        return compared(verdict, stage, against)
    return _MEANING.get(verdict, "has no verdict that is known")


def compared(verdict: str | None, stage: str, base: str) -> str:
    """Return what a verdict says about a file that is held against another kernel; None: there was no time for one."""
    if verdict is None:
        return "was not judged: no time was left; give it more --minutes"
    if verdict == "undecided" and stage in ("time", "confirm"):
        return f"is right; whether it is slower than {base} could not be decided"
    said = {
        "slower": f"is right, and slower than {base}",
        "not_slower": f"is right, and not slower than {base}",
        "checked": f"is right as far as can be told without a GPU, and has other code than {base}; not timed",
    }
    return said.get(verdict) or meaning(verdict)


def verdict(name: str, said: str, verdict: str, stage: str, reason: str, out: Console) -> None:
    """Print the result of a check in one line. `said`: what the verdict means."""
    style = STYLE.get(verdict, "red")
    out.print(
        f"[{style}]{verdict}[/{style}]: {escape(name)} {escape(said)} (stage {stage}: {escape(reason)})",
        highlight=False,
        soft_wrap=True,
    )


def result(summary: RunSummary, run: str, state: str, console: Console | None = None) -> None:
    """Print the result of a run."""
    out = console or output()
    if isinstance(summary, FailedRun):
        out.print(escape(summary.error), highlight=False)
    elif isinstance(summary, MeasuredRun):
        _measured(summary, run, out)
    else:
        _ranked(summary, run, out)
    if state == "budget":
        out.print("The budget was spent before anything was judged: give it more --minutes, or --gpu-seconds.")


def _measured(summary: MeasuredRun, run: str, out: Console) -> None:
    env = summary.environment
    names = {n for row in summary.cases.values() for n in row.sides}
    baselines = ["shipped", *([AUTOTUNED] if AUTOTUNED in names else []), "tuned"]
    noted = summary.libraries or {}
    libraries = sorted((names | noted.keys()) - {*baselines, "winner", "A/A"})
    if warning := shipped_configurations.lost(summary):
        out.print(f"[bold yellow]{escape(warning)}[/bold yellow]", highlight=False, soft_wrap=True)
    title = f"Measured on {env.gpu}, driver {env.driver}, torch {env.torch}"
    table = Table(title=title, title_justify="left")
    sides = [*baselines, *(["winner"] if summary.winner else []), *libraries]
    for column in ("case", "", *sides, *(["winner / tuned"] if summary.winner else [])):
        table.add_column(column, justify="left" if column in ("case", "") else "right")
    for case, row in summary.cases.items():
        refused = {s: no_time(cases[case]) for s, cases in noted.items() if case in cases}
        cells = [f"{row.sides[s].rate:.0f}" if s in row.sides else refused.get(s, "-") for s in sides]
        last = [interval(row.ratio["tuned"])] if row.ratio else []
        table.add_row(case.split("/", 1)[1], row.sides["shipped"].unit, *cells, *last)
    out.print(table)
    if summary.winner:
        against = summary.against
        out.print(
            f"accepted: {interval(against['shipped'])} of as shipped, {interval(against['tuned'])} of tuned "
            f"{_of_autotuned(against)}(geometric mean, 95 %)"
        )
        out.print(f"evidence: pgo-agent show {run} {summary.winner}", highlight=False)
    else:
        out.print("no candidate was faster than the kernel as shipped beyond the noise.")
    notes = (shipped_configurations.note(summary.unfit), *uncompiled(summary), *of_libraries(summary))
    for note in filter(None, notes):
        out.print(escape(note), highlight=False, soft_wrap=True)


def uncompiled(summary: RunSummary | None) -> list[str]:
    """Return in which cases the compiled reference that was asked for has no time, and why."""
    notes = (summary.uncompiled or {}).items() if isinstance(summary, MeasuredRun) else ()
    return [f"torch.compile of the reference is not timed in {c.split('/', 1)[1]}: {why}" for c, why in notes]


def of_libraries(summary: RunSummary | None) -> list[str]:
    """Return which libraries have no time in which cases, or results that would not be accepted, and why."""
    noted = (summary.libraries or {}).items() if isinstance(summary, MeasuredRun) else ()
    lines = list[str]()
    for library, cases in noted:
        for why in dict.fromkeys(cases.values()):
            lines.append(f"{library} in {', '.join(c.split('/', 1)[1] for c, w in cases.items() if w == why)}: {why}")
    return lines


def _of_autotuned(against: Mapping[str, Sequence[float]]) -> str:
    return f"and {interval(against[AUTOTUNED])} of what triton.autotune picks " if AUTOTUNED in against else ""


def interval(x: Sequence[float]) -> str:
    """Format a speedup with its interval. `x`: low, middle, high."""
    return f"{x[1]:.3f}x [{x[0]:.3f}, {x[2]:.3f}]"


def _ranked(summary: RankedRun, run: str, out: Console) -> None:
    recorded = any(s.how is TimeSource.RECORDED for row in summary.cases.values() for s in row.values())
    origin = f" (rates without ~ were recorded on an {summary.device})" if recorded else ""
    table = Table(title=f"Best known configuration of each case{origin}", title_justify="left")
    sides = {"shipped": "as shipped"}
    if summary.varied:  # else the best of the grid is the kernel as shipped
        sides["tuned"] = "best of the launch grid"
    for column in ("case", *(c for side in sides.values() for c in (side, "rate"))):
        table.add_column(column, justify="right" if column == "rate" else "left")
    for case, row in summary.cases.items():
        cells = [cell for side in sides for cell in (row[side].choice, _rate(row[side]))]
        table.add_row(case.split("/", 1)[1], *cells)
    out.print(table)
    ranking = Table(
        title="Candidates, by recorded time first and by estimate after (below 1 is faster)", title_justify="left"
    )
    for column in ("candidate", "move", "verdict", "relative time", "known from"):
        ranking.add_column(column, justify="right" if column == "relative time" else "left")
    for c in summary.ranking[:12]:
        ranking.add_row(c.candidate[:8], c.move, c.verdict, relative(c.relative, c.how), c.how)
    if summary.ranking:
        out.print(ranking)
    covers = [c.coverage for c in summary.ranking]
    for count, text in coverage_text.counted_alike(covers):
        out.print(f"checked of {count} of them: {escape(text)}", highlight=False, soft_wrap=True)
    if text := coverage_text.left_out_of_any(covers):
        out.print(f"left out: {escape(text)}", highlight=False, soft_wrap=True)
    out.print(
        "~ is an estimate from the static profile, never a measurement. Recorded figures are of this very code, "
        "measured on that GPU.",
        highlight=False,
    )
    out.print(
        f"next: pgo-agent show {run}   (on a machine with the GPU, the same command judges and measures)",
        highlight=False,
    )


def relative(x: float | None, how: str) -> str:
    """Format a candidate's time over the tuned baseline's; an estimate is marked."""
    mark = "~" if "estimate" in how or "partly" in how else ""
    return "-" if x is None else f"{mark}{x:.3f}"


def _rate(rate: KnownRate) -> str:
    return f"{'~' if rate.how is TimeSource.ESTIMATE else ''}{rate.rate:.0f} {rate.unit}"


def near(path: str) -> str:
    """Return a path relative to the working directory if it is below it, else unchanged."""
    inside = Path(path).is_relative_to(Path.cwd())
    return str(Path(path).relative_to(Path.cwd())) if inside else path
