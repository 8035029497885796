"""Who stands where: the last row of each kernel, optimizer and seed on a GPU, and means over them.

A row without a winner counts as 1, and so does one that failed. Times of different GPUs are never put together.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pgo_agent.evals.nightly.report import mean
from pgo_agent.evals.nightly.row import SHIPPED, TUNED, Row


@dataclass(frozen=True)
class KernelRows:
    """A kernel by an optimizer: its last row of each seed."""

    rows: tuple[Row, ...]

    @property
    def tuned(self) -> float:
        return mean(self.rows, TUNED) or 1.0

    @property
    def shipped(self) -> float:
        return mean(self.rows, SHIPPED) or 1.0

    @property
    def span(self) -> tuple[float, float]:
        """Of several seeds the lowest and the highest; of one its 95 % interval."""
        if len(self.rows) == 1:
            ratio = self.rows[0].ratio(TUNED)
            return ratio.low, ratio.high
        middles = [r.middle(TUNED) for r in self.rows]
        return min(middles), max(middles)

    @property
    def won(self) -> int:
        return sum(r.winner is not None for r in self.rows)

    @property
    def failed(self) -> int:
        return sum(bool(r.failed) for r in self.rows)

    @property
    def best(self) -> Row:
        return max(self.rows, key=lambda r: (not r.failed, r.middle(TUNED)))


@dataclass(frozen=True)
class Board:
    """All that was measured on one GPU, of one suite of kernels."""

    gpu: str
    rows: tuple[Row, ...]  # every one, oldest first
    suite: str = ""  # empty: kernels of no suite

    @property
    def last(self) -> list[Row]:
        """The last row of each kernel, optimizer and seed."""
        return list({r.key: r for r in self.rows}.values())

    @property
    def kernels(self) -> list[str]:
        return sorted({r.kernel for r in self.rows})

    @property
    def optimizers(self) -> list[str]:
        """Those of most kernels first, for means over other kernels say nothing of each other; then by their mean."""
        by_optimizer = {o: [r for r in self.last if r.optimizer == o] for o in sorted({r.optimizer for r in self.rows})}
        return sorted(
            by_optimizer,
            key=lambda o: (-len({r.kernel for r in by_optimizer[o]}), -(mean(by_optimizer[o], TUNED) or 1.0)),
        )

    def cell(self, kernel: str, optimizer: str) -> KernelRows | None:
        rows = tuple(r for r in self.last if (r.kernel, r.optimizer) == (kernel, optimizer))
        return KernelRows(rows) if rows else None

    def best(self, kernel: str) -> Row:
        return KernelRows(tuple(r for r in self.last if r.kernel == kernel)).best

    def of(self, kernel: str) -> "Board":
        return replace(self, rows=tuple(r for r in self.rows if r.kernel == kernel))

    @property
    def nights(self) -> list[tuple[str, list[Row]]]:
        """Label and rows of each file, in the order in which they were begun."""
        by_file: dict[str, list[Row]] = {}
        for r in self.rows:
            by_file.setdefault(r.file, []).append(r)
        return [(rows[0].when[:10], rows) for rows in by_file.values()]


def boards(rows: Iterable[Row], suite: str = "") -> list[Board]:
    """Return one for each GPU, of rows that are all of a suite or of none: of most rows first, then by name."""
    by_gpu: dict[str, list[Row]] = {}
    for r in sorted(rows, key=lambda r: r.when):
        by_gpu.setdefault(r.gpu, []).append(r)
    ordered = sorted(by_gpu.items(), key=lambda b: (-len(b[1]), b[0]))
    return [Board(gpu, tuple(listed), suite) for gpu, listed in ordered]


def noise(rows: Sequence[Row]) -> Mapping[str, float]:
    """Return how far the timer was off against itself, in percent, and how often, over every case of every row."""
    intervals = [c.noise for r in rows for c in r.cases.values()]
    off = sorted(100 * abs(math.expm1(math.log(i.mid))) for i in intervals)
    if not off:
        return {}
    holds = sum(i.low <= 1 <= i.high for i in intervals)
    return {"cases": len(off), "median": off[len(off) // 2], "most": off[-1], "holds": holds}
