"""What `pgo-agent eval compare` prints: a line for each case, what was not compared, and the word."""

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from pgo_agent.agent import display
from pgo_agent.evals.nightly import reading
from pgo_agent.evals.regressions.comparing import CHANCE, REGRESSIONS, Compared, Comparison, Standing, compare
from rich.markup import escape
from rich.table import Table


def main(before: Path, after: Path, effect: float, everything: bool, json_lines: bool) -> int:
    """1 when something became slower, else 0. Raises UsageFault for files that cannot be compared."""
    one, other = reading.file(before), reading.file(after)
    found = compare(one.rows, other.rows, effect)
    notes = (*one.notes, *other.notes, *found.notes)
    if json_lines:
        for c in found.cases:
            print(json.dumps({"type": "case.compared"} | asdict(c)))
        counted = Counter(str(c.standing) for c in found.cases)
        print(json.dumps({"type": "compare.completed", "standings": counted, "notes": notes}))
    else:
        _show(found, notes, everything)
    return int(bool(found.regressions))


def _show(found: Comparison, notes: tuple[str, ...], everything: bool) -> None:
    out = display.output()
    shown = [c for c in found.cases if everything or c.standing not in (Standing.SAME, Standing.EQUAL)]
    if shown:
        out.print(_table(shown))
    for note in notes:
        out.print(f"note: {note}", markup=False, soft_wrap=True)
    counted = Counter(c.standing for c in found.cases)
    out.print(", ".join(f"{counted[s]} {s}" for s in Standing if counted[s]) + f" (of {len(found.cases)})")
    slow = len(found.regressions)
    told = f"{slow} regression{'' if slow == 1 else 's'}" if slow else "no regression"
    out.print(f"{told}: chance of any false one at most {CHANCE:.0%}, over all cases that were tested")


def _table(shown: list[Compared]) -> Table:
    table = Table("kernel", "optimizer", "seed", "case")
    for column in ("time, later / earlier", "must exceed", "by chance"):
        table.add_column(column, justify="right")
    table.add_column("came to")
    for c in sorted(shown, key=lambda c: (c.standing not in REGRESSIONS, -(c.change or 0.0))):
        kernel, optimizer, seed, case = c.place
        change = f"{c.change:.3f}" if c.change else ""
        figures = (
            change,
            f"{c.threshold:.3f}" if c.threshold else "",
            f"{c.chance:.2g}" if c.chance is not None else "",
        )
        told = f"{c.standing}: {c.why}" if c.why else str(c.standing)
        where = (kernel, escape(optimizer), "-" if seed is None else str(seed), case.split("/", 1)[-1])
        table.add_row(*where, *figures, escape(told))
    return table
