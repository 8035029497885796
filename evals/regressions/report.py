"""What `pgo-agent eval compare` prints: a line for each case, what was not compared, and the verdict."""

import json
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from pgo_agent.agent.views import summary
from pgo_agent.evals.nightly import load
from pgo_agent.evals.regressions.compare import CHANCE, REGRESSIONS, Compared, Comparison, Standing, compare, named
from rich.markup import escape
from rich.table import Table

CASE, ENDED = "case.compared", "compare.completed"  # types of lines of JSON


@dataclass(frozen=True)
class Ended:
    """The last line: how often each standing came out, and what was not compared."""

    standings: dict[str, int]
    notes: tuple[str, ...]


def main(before: Path, after: Path, effect: float, everything: bool, json_lines: bool) -> int:
    """Print the comparison; return 1 when something became slower, else 0. Raises UsageFault where none can be made."""
    files = (before, after)
    first, second = (load.file(file, name) for file, name in zip(files, load.names(files), strict=True))
    comparison = compare(first.rows, second.rows, effect)
    notes = (*first.notes, *second.notes, *comparison.notes)
    if json_lines:
        for c in comparison.cases:
            print(json.dumps({"type": CASE} | asdict(c)))
        ended = Ended(dict(Counter(str(c.standing) for c in comparison.cases)), notes)
        print(json.dumps({"type": ENDED} | asdict(ended)))
    else:
        _show(comparison, notes, everything)
    return int(bool(comparison.regressions))


def _show(comparison: Comparison, notes: tuple[str, ...], everything: bool) -> None:
    out = summary.output()
    shown = [c for c in comparison.cases if everything or c.standing not in (Standing.SAME, Standing.EQUAL)]
    if shown:
        out.print(_table(shown))
    for c in (c for c in shown if c.why):
        out.print(f"{c.standing}: {named(c.place)}: {c.why}", markup=False, highlight=False, soft_wrap=True)
    for note in notes:
        out.print(f"note: {note}", markup=False, highlight=False, soft_wrap=True)
    counted = Counter(c.standing for c in comparison.cases)
    out.print(", ".join(f"{counted[s]} {s}" for s in Standing if counted[s]) + f" (of {len(comparison.cases)})")
    slow = len(comparison.regressions)
    text = f"{slow} regression{'' if slow == 1 else 's'}" if slow else "no regression"
    out.print(f"{text}; the chance of any false one is below {CHANCE:.0%}", highlight=False)


def _table(shown: list[Compared]) -> Table:
    table = Table("kernel", "optimizer", "seed", "case")
    for column in ("time", "limit", "chance"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("came to")
    for c in sorted(shown, key=lambda c: (c.standing not in REGRESSIONS, -(c.change or 0.0))):
        kernel, optimizer, seed, case = c.place
        figures = (_part(c.change), _part(c.threshold), f"{c.chance:.2g}" if c.chance is not None else "")
        where = (kernel, escape(optimizer), "-" if seed is None else str(seed), case.split("/", 1)[-1])
        table.add_row(*where, *figures, str(c.standing), style="red" if c.standing in REGRESSIONS else None)
    return table


def _part(times: float | None) -> str:
    """Return how much longer, in percent."""
    return "" if times is None else f"{100 * (times - 1):+.1f} %"
