"""The section of kernels of public packages: plain values for the first page, and the same for programs.

A table of each optimizer on each GPU: every kernel that the suite names, also one that never got to a measurement, with
its reason. Relies on `evals/field/` for what became of each kernel. Means over these kernels stand apart from those of
the kernels that ship.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pgo_agent.evals.field import outcome, report
from pgo_agent.evals.field.outcome import Outcome
from pgo_agent.evals.field.report import Summary
from pgo_agent.evals.field.run import SUITE
from pgo_agent.evals.field.targets import FieldTarget
from pgo_agent.evals.leaderboard import pages, rank
from pgo_agent.evals.leaderboard.rank import Board
from pgo_agent.evals.nightly.row import Row
from pgo_agent.sandbox.json_codec import JsonObject


@dataclass(frozen=True)
class Standing:
    """The last row of each kernel by one optimizer on one GPU, and what is known of all kernels' targets."""

    board: Board
    optimizer: str
    targets: Sequence[FieldTarget]

    @property
    def rows(self) -> dict[str, Row]:
        return {r.kernel: r for r in self.board.last if r.optimizer == self.optimizer}

    @property
    def outcomes(self) -> list[Outcome]:
        return outcome.of(self.targets, self.rows)

    @property
    def counted(self) -> Summary:
        return report.summary(self.targets, self.rows)


def boards(rows: Iterable[Row]) -> list[Board]:
    return rank.boards((r for r in rows if r.suite == SUITE), SUITE)


def others(rows: Iterable[Row]) -> list[Board]:
    """Return the boards of all other kernels."""
    return rank.boards(r for r in rows if r.suite != SUITE)


def standings(rows: Sequence[Row], targets: Sequence[FieldTarget]) -> list[Standing]:
    return [Standing(b, o, targets) for b in boards(rows) for o in b.optimizers]


def section(found: Sequence[Standing]) -> list[JsonObject]:
    """Return what the first page shows of each."""
    return [
        {
            "gpu": s.board.gpu,
            "optimizer": s.optimizer,
            "versions": pages.versions(list(s.rows.values())),
            "line": report.line(s.counted) if s.targets else f"{len(s.rows)} kernels: {report.means(s.counted)}",
            "kernels": [_kernel(s, o) for o in s.outcomes],
        }
        for s in found
    ]


def _kernel(s: Standing, o: Outcome) -> JsonObject:
    *numbers, why = report.cells(o)
    return {
        "kernel": o.kernel,
        "package": o.package,
        "page": pages.page(s.board, o.kernel) if o.row else "",
        "numbers": numbers,
        "why": why,
        "failed": o.failed,
        "won": bool(o.row and o.row.winner),
        "uncompiled": o.uncompiled,
    }


def data(found: Sequence[Standing]) -> list[JsonObject]:
    """Return the same for programs."""
    return [
        {"gpu": s.board.gpu, "optimizer": s.optimizer, **s.counted.as_json(), "kernels": [_row(o) for o in s.outcomes]}
        for s in found
    ]


def _row(o: Outcome) -> JsonObject:
    sides = outcome.TIMED
    return {
        "kernel": o.kernel,
        "package": o.package,
        "ms": {side: o.ms(side) for side in sides},
        "over": {side: o.over(side) for side in sides},
        "why": o.why,
        "run": o.row.run if o.row else None,
    }
