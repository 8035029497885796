"""What became of each kernel of the field suite: its target, and its run on a GPU where there was one.

A kernel without a target, and a run that failed, count as a gain of 1. Relies on `targets.py` and on rows of a nightly.
It shows nothing: `report.py`, `evals/tables.py` and the leaderboard do.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pgo_agent.evals.field.targets import FieldTarget
from pgo_agent.evals.nightly.row import SHIPPED, TUNED, Row
from pgo_agent.sandbox.target import COMPILED

TIMED = (SHIPPED, TUNED, COMPILED)  # sides whose times a table shows
LONGEST = 110  # characters of a reason in a table


@dataclass(frozen=True)
class Outcome:
    kernel: str
    target: FieldTarget | None  # None: nothing is known of it but its row
    row: Row | None  # None: it was not run

    @property
    def package(self) -> str:
        return f"{self.target.package} {self.target.version}".strip() if self.target else ""

    @property
    def counted(self) -> bool:
        """Whether it counts in a mean: a kernel of a package that is not installed does not."""
        return self.row is not None or bool(self.target and self.target.version)

    @property
    def failed(self) -> bool:
        """Whether it counts as 1 because it did not get to a measurement."""
        return self.row is None or bool(self.row.failed)

    def over(self, side: str) -> float | None:
        """Return how many times faster than a side what is delivered is: 1 of a failure; None where `torch.compile` has
        no time."""
        if side == COMPILED:
            return self.row.over(COMPILED) if self.row else None
        return self.row.middle(side) if self.row else 1.0

    def ms(self, side: str) -> float | None:
        """Return the time of a side: the geometric mean over the cases that have it; None where none has."""
        cases = self.row.cases.values() if self.row else ()
        medians = [c.median(side) for c in cases if side in c.ms]
        return statistics.geometric_mean(medians) if medians else None

    @property
    def why(self) -> str:
        """What won, or what stood in the way, in one line."""
        if self.row is None:
            return _without_a_run(self.target)
        if self.row.failed:
            return short(self.row.failed)
        return ", then ".join(self.row.winner.moves) if self.row.winner else "no candidate was faster"

    @property
    def uncompiled(self) -> str:
        """Why `torch.compile` of the reference has no time; empty where it has one, or nobody asked."""
        return next(iter((self.row.uncompiled or {}).values()), "") if self.row else ""


def of(targets: Sequence[FieldTarget], rows: Mapping[str, Row]) -> list[Outcome]:
    """Return what became of each kernel with a target, and then of those with a row alone. `rows`: by kernel."""
    alone = [Outcome(kernel, None, row) for kernel, row in rows.items() if kernel not in {t.kernel for t in targets}]
    return [*(Outcome(t.kernel, t, rows.get(t.kernel)) for t in targets), *alone]


def mean(outcomes: Sequence[Outcome], side: str) -> float | None:
    """Return the geometric mean over the kernels that count, of `torch.compile` over those where it was timed."""
    gains = [gain for o in outcomes if o.counted and (gain := o.over(side)) is not None]
    return statistics.geometric_mean(gains) if gains else None


def _without_a_run(target: FieldTarget | None) -> str:
    if target is None or target.ready:
        return "not run"
    if not target.version:
        return "its package is not installed"
    return "a line is left to write" if target.written else "`init` found no launcher"


def short(failed: str) -> str:
    """Return why a run failed in one line: without the file's name and the advice."""
    text = failed.splitlines()[0]
    for head in ("the kernel as it stands is ", "the kernel as it stands "):
        text = text.rpartition(head)[2]
    return text[:LONGEST]
