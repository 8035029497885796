"""What `pgo-agent eval field` shows: for each kernel how far it came, and shares and means over all of them.

A kernel without a target, and a run that failed, count as a gain of 1.
"""

import json
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pgo_agent.agent.exit_codes import Exit
from pgo_agent.agent.views import summary as display
from pgo_agent.evals.field import run
from pgo_agent.evals.field.targets import FieldTarget
from pgo_agent.evals.nightly.row import BASES, SHIPPED, TUNED, Row
from rich.table import Table


def summary(targets: Sequence[FieldTarget], rows: Mapping[str, Row]) -> dict[str, Any]:
    """Return what is counted over all kernels, as plain values. `rows`: kernel -> what its run came to."""
    installed = [t for t in targets if t.version]
    written = [t for t in installed if t.written]
    counts: dict[str, Any] = {
        "kernels": len(targets),
        "packages": len({t.package for t in targets}),
        "installed": len(installed),
        "written": len(written),
        "ready": sum(t.ready for t in installed),
        "right": sum(t.verdict == "right" for t in installed),
        "built": sum(t.verdict == "built" for t in installed),
        "lines by hand, median": statistics.median(t.by_hand for t in written) if written else None,
        "seconds of init, median": statistics.median(t.seconds for t in written) if written else None,
    }
    if rows:
        counts["measured"] = sum(not r.failed for r in rows.values())
        counts["accepted"] = sum(r.winner is not None for r in rows.values())
        counts["mean"] = {b: _mean([_middle(rows.get(t.kernel), b) for t in installed]) for b in BASES}
    return counts


@dataclass(frozen=True)
class FieldReport:
    """The end of `eval field`: of targets, and of the runs below its folder."""

    made: Sequence[FieldTarget]
    folder: Path

    @property
    def ready(self) -> list[FieldTarget]:
        return [t for t in self.made if t.ready]

    @property
    def code(self) -> Exit:
        return Exit.DONE if len(self.ready) == len(self.made) else Exit.NONE_FOUND

    def end(self, json_lines: bool) -> Exit:
        """Print all of it, where nothing is measured."""
        if json_lines:
            return self.finish(None, True, self.code)
        self.show(None)
        return self.code

    def finish(self, _results: object, json_lines: bool, code: Exit) -> Exit:
        """End the feed of events with what was counted; return the code."""
        if json_lines:
            counted = summary(self.made, run.rows(self.folder))
            print(json.dumps({"type": "field.completed"} | counted), flush=True)
        return code or self.code

    def show(self, _results: object) -> None:
        rows, out = run.rows(self.folder), display.output()
        out.print(_table(self.made, rows))
        for t in self.made:
            if t.said and t.verdict != "right":
                out.print(f"{t.kernel}: {t.said}", markup=False, soft_wrap=True)
        for r in rows.values():
            if r.failed:
                out.print(f"{r.kernel}: its run failed: {r.failed}", markup=False, soft_wrap=True)
        out.print(line(summary(self.made, rows)), markup=False, soft_wrap=True)


def tell(made: FieldTarget) -> None:
    """Print how far a kernel came, as soon as it is known."""
    print(f"{made.kernel}: {_state(made)}", file=sys.stderr, flush=True)


def _state(t: FieldTarget) -> str:
    return t.verdict or ("target" if t.ready else "lines to write" if t.written else "no target")


def _table(made: Sequence[FieldTarget], rows: Mapping[str, Row]) -> Table:
    table = Table(title="kernels of public packages", title_justify="left")
    numbers = ("by hand", "init s", *(("of shipped", "of tuned") if rows else ()))
    for column in ("kernel", "package", "without a GPU", *numbers):
        table.add_column(column, justify="right" if column in numbers else "left")
    for t in made:
        gains = [_gain(rows.get(t.kernel), b) for b in (SHIPPED, TUNED)] if rows else []
        table.add_row(t.kernel, f"{t.package} {t.version}", _state(t), str(t.by_hand), f"{t.seconds:.0f}", *gains)
    return table


def line(counts: Mapping[str, Any]) -> str:
    text = (
        f"{counts['kernels']} kernels of {counts['packages']} packages: {counts['written']} targets written, "
        f"{counts['ready']} whole"
    )
    if counts["right"] or counts["built"]:
        text += f"; {counts['right']} right and {counts['built']} built without a GPU"
    if (by_hand := counts["lines by hand, median"]) is not None:
        text += f"; in the median {by_hand:g} lines by hand and {counts['seconds of init, median']:.0f} s"
    if "mean" in counts:
        means = ", ".join(f"{mean:.3f}x of {base}" for base, mean in counts["mean"].items())
        text += f"; {counts['measured']} measured, {counts['accepted']} faster; geometric mean {means}"
    return text


def cells(made: FieldTarget, row: Row | None) -> list[str]:
    """Return what a kernel's run came to as cells of a table: of as shipped, of tuned, and why."""
    if row is None:
        why = "not run" if made.ready else "a line is left to write" if made.written else "`init` found no launcher"
        return ["-", "-", why]
    if row.failed:
        return ["1", "1", _short(row.failed)]
    won = ", then ".join(row.winner.moves) if row.winner else "no candidate was faster"
    return [f"{row.middle(SHIPPED):.3f}", f"{row.middle(TUNED):.3f}", won]


def _short(failed: str) -> str:
    """Return why a run failed in one line: without the file's name and the advice."""
    text = failed.splitlines()[0]
    for head in ("the kernel as it stands is ", "the kernel as it stands "):
        text = text.rpartition(head)[2]
    return text[:110].replace("|", "/")


def _middle(row: Row | None, base: str) -> float:
    return row.middle(base) if row else 1.0


def _gain(row: Row | None, base: str) -> str:
    return "-" if row is None else "failed: 1" if row.failed else f"{row.middle(base):.3f}"


def _mean(gains: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, gains)) / len(gains)) if gains else 1.0
