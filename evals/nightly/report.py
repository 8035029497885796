"""What `pgo-agent eval nightly` prints: a line for each row, failures among them, and each optimizer's mean."""

import json
import math
from collections.abc import Iterable, Sequence
from typing import TypedDict

from pgo_agent.agent.exit_codes import Exit
from pgo_agent.agent.run import shipped_configurations
from pgo_agent.agent.version import short
from pgo_agent.agent.views import summary as display
from pgo_agent.evals.nightly.row import BASES, SHIPPED, TUNED, Row
from pgo_agent.evals.nightly.run import Rows
from pgo_agent.evals.runner import waiting
from pgo_agent.sandbox.judge.timing.bootstrap import Interval
from rich.markup import escape
from rich.table import Table

COMPLETED = "nightly.completed"


class Summary(TypedDict):
    """What is counted over the rows of a plan."""

    plan: str  # digest
    rows: int
    failed: int
    missing: int
    mean: dict[str, dict[str, float | None]]  # optimizer -> baseline -> geometric mean
    gpu_seconds: float


def mean(rows: Iterable[Row], base: str) -> float | None:
    """Return the geometric mean of rows, a kernel weighing the same however many of its rows there are; None of no
    rows."""
    by_kernel: dict[str, list[float]] = {}
    for r in rows:
        by_kernel.setdefault(r.kernel, []).append(math.log(r.middle(base)))
    means = [sum(logs) / len(logs) for logs in by_kernel.values()]
    return math.exp(sum(means) / len(means)) if means else None


def summary(rows: Rows) -> Summary:
    """Return everything that is counted, as plain values."""
    ended = rows.rows()
    return {
        "plan": rows.plan.digest,
        "rows": len(ended),
        "failed": sum(bool(r.failed) for r in ended),
        "missing": len(rows.missing),
        "mean": {o: {b: mean(_of(ended, o), b) for b in BASES} for o in rows.plan.optimizers},
        "gpu_seconds": round(sum(r.gpu_seconds or 0.0 for r in ended), 1),
    }


def _of(rows: Sequence[Row], optimizer: str) -> list[Row]:
    return [r for r in rows if r.optimizer == optimizer]


def finish(rows: Rows, json_lines: bool, code: Exit) -> Exit:
    """End the feed of events with what was counted; return the code."""
    if json_lines:
        print(json.dumps({"type": COMPLETED, **summary(rows)}), flush=True)
    return code


def show(rows: Rows) -> None:
    out, counted, ended = display.output(), summary(rows), rows.rows()
    table = Table(title=f"{ended[0].gpu}, commit {short(ended[0].commit)}" if ended else None, title_justify="left")
    for column in ("kernel", "optimizer", "seed", "of tuned", "shipped", "judged", "GPU s"):
        table.add_column(column, justify="left" if column in ("kernel", "optimizer") else "right")
    for r in ended:
        sides = (_came_to(r), f"{r.middle(SHIPPED):.3f}")
        spent = f"{r.gpu_seconds or 0.0:.0f}"
        table.add_row(r.kernel, escape(r.optimizer), str(r.seed), *sides, str(len(r.candidates)), spent)
    out.print(table)
    for optimizer, means in counted["mean"].items():
        if means[TUNED] is not None:
            means_text = f"{optimizer}: {means[TUNED]:.4f}x of tuned, {means[SHIPPED]:.4f}x of shipped"
            out.print(f"{means_text} (geometric mean of kernels; a failure counts as 1)", markup=False, soft_wrap=True)
    for r in ended:
        for note in filter(None, (slower(r), shipped_configurations.note(r.unfit))):
            out.print(f"{r.kernel}, {r.optimizer}, seed {r.seed}: {note}", markup=False, soft_wrap=True)
        if r.failed:
            out.print(f"failed: {r.kernel}, {r.optimizer}, seed {r.seed}: {r.failed}", markup=False, soft_wrap=True)
    waiting.show(rows.waiting, out)
    if counted["missing"]:
        out.print(f"runs without a row yet: {counted['missing']}; the same command goes on")
    out.print(f"every row: {rows.file}", markup=False, soft_wrap=True)


def _came_to(r: Row) -> str:
    return "failed: 1" if r.failed else interval(r.ratio(TUNED)) if r.winner else "no winner: 1"


def slower(r: Row) -> str:
    """Return that a row gained nothing over what `triton.autotune` picks; empty where it did, or that is as shipped."""
    of = r.of_autotuned
    if of is None or of >= 1:
        return ""
    return (
        f"nothing was gained against what triton.autotune picks: {of:.3f}x of it, which is not right by the rule here"
    )


def interval(x: Interval) -> str:
    return f"{x.mid:.3f} [{x.low:.3f}, {x.high:.3f}]"
