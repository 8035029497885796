"""What `pgo-agent eval field` shows: for each kernel how far it came, and shares and means over all of them.

A kernel without a target, and a run that failed, count as a gain of 1.
"""

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NotRequired, TypedDict

from pgo_agent.agent.exit_codes import Exit
from pgo_agent.agent.views import summary as display
from pgo_agent.evals.field import outcome, run
from pgo_agent.evals.field.outcome import TIMED, Outcome
from pgo_agent.evals.field.targets import FieldTarget
from pgo_agent.evals.nightly.row import BASES, Row
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.target import COMPILED
from rich.table import Table

COMPLETED = "field.completed"


class Over(TypedDict):
    kernels: int
    mean: float


Counts = TypedDict(
    "Counts",
    {
        "kernels": int,
        "packages": int,
        "installed": int,
        "written": int,
        "ready": int,
        "right": int,
        "built": int,
        "lines by hand, median": float | None,
        "seconds of init, median": float | None,
        "measured": NotRequired[int],
        "accepted": NotRequired[int],
        "mean": NotRequired[dict[str, float]],  # baseline -> geometric mean
        "torch.compile": NotRequired[Over],
    },
)


@dataclass(frozen=True)
class Summary:
    """What is counted over all kernels."""

    outcomes: Sequence[Outcome]
    measured: bool  # whether there were runs

    @property
    def targets(self) -> list[FieldTarget]:
        return [o.target for o in self.outcomes if o.target]

    @property
    def counts(self) -> dict[str, int]:
        made = [t for t in self.targets if t.version]
        return {
            "kernels": len(self.targets),
            "packages": len({t.package for t in self.targets}),
            "installed": len(made),
            "written": sum(t.written for t in made),
            "ready": sum(t.ready for t in made),
            "right": sum(t.verdict == "right" for t in made),
            "built": sum(t.verdict == "built" for t in made),
        }

    @property
    def medians(self) -> dict[str, float | None]:
        """By hand and by the clock, of the targets that were written."""
        written = [t for t in self.targets if t.version and t.written]
        return {
            "lines by hand, median": statistics.median(t.by_hand for t in written) if written else None,
            "seconds of init, median": statistics.median(t.seconds for t in written) if written else None,
        }

    @property
    def runs(self) -> dict[str, int]:
        rows = [o.row for o in self.outcomes if o.row]
        return {"measured": sum(not r.failed for r in rows), "accepted": sum(r.winner is not None for r in rows)}

    @property
    def compiled(self) -> int:
        """Kernels whose compiled reference was timed."""
        return sum(o.over(COMPILED) is not None for o in self.outcomes)

    def as_json(self) -> JsonObject:
        told: JsonObject = {**self.counts, **self.medians}
        if self.measured:
            told |= self.runs
            told["mean"] = {b: outcome.mean(self.outcomes, b) for b in BASES}
            told[COMPILED] = {"kernels": self.compiled, "mean": outcome.mean(self.outcomes, COMPILED)}
        return told


def summary(targets: Sequence[FieldTarget], rows: Mapping[str, Row]) -> Summary:
    """Return what is counted over all kernels. `rows`: kernel -> what its run came to."""
    return Summary(outcome.of(targets, rows), bool(rows))


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
            counted = summary(self.made, run.rows(self.folder)).as_json()
            print(json.dumps({"type": COMPLETED} | counted), flush=True)
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
            for why in (r.uncompiled or {}).values():
                out.print(
                    f"{r.kernel}: torch.compile of its reference is not timed: {why}", markup=False, soft_wrap=True
                )
        out.print(line(summary(self.made, rows)), markup=False, soft_wrap=True)


def tell(made: FieldTarget) -> None:
    """Print how far a kernel came, as soon as it is known."""
    print(f"{made.kernel}: {_state(made)}", file=sys.stderr, flush=True)


def _state(t: FieldTarget) -> str:
    return t.verdict or ("target" if t.ready else "lines to write" if t.written else "no target")


def _table(made: Sequence[FieldTarget], rows: Mapping[str, Row]) -> Table:
    table = Table(title="kernels of public packages", title_justify="left")
    numbers = ("by hand", "init s", *([f"of {side}" for side in TIMED] if rows else ()))
    for column in ("kernel", "package", "without a GPU", *numbers):
        table.add_column(column, justify="right" if column in numbers else "left")
    for t in made:
        gains = _gains(Outcome(t.kernel, t, rows.get(t.kernel))) if rows else []
        table.add_row(t.kernel, f"{t.package} {t.version}", _state(t), str(t.by_hand), f"{t.seconds:.0f}", *gains)
    return table


def _gains(o: Outcome) -> list[str]:
    if o.failed:
        return ["-" if o.row is None else "failed: 1"] * len(TIMED)
    return [number(o.over(side)) for side in TIMED]


def line(found: Summary) -> str:
    counts, (by_hand, seconds) = found.counts, found.medians.values()
    text = (
        f"{counts['kernels']} kernels of {counts['packages']} packages: {counts['written']} targets written, "
        f"{counts['ready']} whole"
    )
    if counts["right"] or counts["built"]:
        text += f"; {counts['right']} right and {counts['built']} built without a GPU"
    if by_hand is not None:
        text += f"; in the median {by_hand:g} lines by hand and {seconds:.0f} s"
    if found.measured:
        runs = found.runs
        text += f"; {runs['measured']} measured, {runs['accepted']} faster; geometric mean {means(found)}"
    return text


def means(found: Summary) -> str:
    """Return the geometric means in words."""
    by_base = {b: outcome.mean(found.outcomes, b) for b in (*BASES, COMPILED)}
    listed = {b: f"{mean:.3f}x of {b}" for b, mean in by_base.items() if mean is not None}
    if COMPILED in listed:
        listed[COMPILED] += f" ({found.compiled} kernels)"
    return ", ".join(listed.values())


def cells(o: Outcome) -> list[str]:
    """Return what became of a kernel as cells of a table: times in ms, how many times faster, and why."""
    times = [f"{ms:#.3g}" if (ms := o.ms(side)) is not None else "-" for side in TIMED]
    gains = ["-" if not o.counted else number(o.over(side), "1" if o.failed else "") for side in TIMED]
    return [*times, *gains, o.why.replace("|", "/")]


def number(gain: float | None, failed: str = "") -> str:
    """Return how many times faster as a cell; `failed`: what to say of a baseline's 1 that stands for a failure."""
    return "-" if gain is None else failed or f"{gain:.3f}"
