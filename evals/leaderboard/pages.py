"""Plain values for the templates: what stands on the first page, and on that of a kernel.

Names, reasons and diffs are hostile: templates escape all of them, and file names are made of letters and figures.
"""

import hashlib
import re
from collections.abc import Sequence

from pgo_agent.agent.run import shipped_configurations
from pgo_agent.agent.run.record.run_summary import no_time
from pgo_agent.agent.run.shipped_configurations import AUTOTUNED
from pgo_agent.agent.version import short
from pgo_agent.evals.leaderboard import figures, rank
from pgo_agent.evals.leaderboard.figures import Bars, Beside, Colors
from pgo_agent.evals.leaderboard.rank import Board, KernelRows
from pgo_agent.evals.nightly.report import interval, mean, slower
from pgo_agent.evals.nightly.row import BASES, SHIPPED, TUNED, WINNER, Case, Row
from pgo_agent.sandbox import devices
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.judge.machine import Environment

VERSIONS = ("driver", "torch", "triton")
COLORS = 6  # colors of the page; with more series, some share one
Values = JsonObject


def colors(boards: Sequence[Board]) -> Colors:
    """Return a color number for each optimizer, the same on every page."""
    names = sorted({r.optimizer for b in boards for r in b.rows})
    return {name: n % COLORS for n, name in enumerate(names)}


def page(board: Board, kernel: str) -> str:
    """Return the file of a kernel on a GPU."""
    device = devices.named(board.gpu)
    name = f"{f'{board.suite}-' if board.suite else ''}{kernel}-{device.key if device else board.gpu}"
    safe = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:80]
    mark = "" if safe == name else "-" + hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{safe}{mark}.html"


# the first page -------------------------------------------------------------------------------------------------------


def board(of_gpu: Board, tones: Colors) -> Values:
    last = of_gpu.last
    return {
        "gpu": of_gpu.gpu,
        "versions": versions(last),
        "nights": len(of_gpu.nights),
        "between": [of_gpu.rows[0].when[:10], of_gpu.rows[-1].when[:10]],
        "kernels": [(k, page(of_gpu, k)) for k in of_gpu.kernels],
        "standings": [_standing(of_gpu, o, tones) for o in of_gpu.optimizers],
        "partly": any(of_gpu.cell(k, o) is None for k in of_gpu.kernels for o in of_gpu.optimizers),
        "bars": _runs(of_gpu, tones),
        "cards": [_card(of_gpu, k) for k in of_gpu.kernels],
        "failures": [r for r in last if r.failed],
        "noise": rank.noise(last),
        "aa": against_itself(last, tones),
    }


def _standing(of_gpu: Board, optimizer: str, tones: Colors) -> Values:
    rows = [r for r in of_gpu.last if r.optimizer == optimizer]
    had = len({r.kernel for r in rows})
    return {
        "optimizer": optimizer,
        "color": tones[optimizer],
        "means": {b: f"{mean(rows, b) or 1.0:.3f}" for b in BASES},
        "part": f"{had} of {len(of_gpu.kernels)} kernels" if had < len(of_gpu.kernels) else "",
        "cells": [_cell(of_gpu.cell(k, optimizer)) for k in of_gpu.kernels],
        "seeds": len({r.seed for r in rows}),
        "gpu_seconds": _sum([r.gpu_seconds for r in rows], "{:,.0f} s"),
        "tokens": _sum([r.tokens for r in rows], "{:,}"),
        "money": _sum([r.money for r in rows], "{:.2f}"),
    }


def _sum(values: Sequence[float | None], form: str) -> str:
    """Empty where one is not recorded."""
    recorded = [v for v in values if v is not None]
    return form.format(sum(recorded)) if len(recorded) == len(values) else ""


def _cell(cell: KernelRows | None) -> Values | None:
    if cell is None:
        return None
    low, high = cell.span
    count = len(cell.rows)
    won = f"{cell.won} of {count} won" if count > 1 else "" if cell.won else "no winner"
    return {
        "mid": f"{cell.tuned:.3f}",
        "span": f"{low:.3f} to {high:.3f}" if cell.won else "",
        "note": ", ".join(filter(None, (won, f"{cell.failed} failed" if cell.failed else ""))),
        "won": bool(cell.won),
    }


def _runs(of_gpu: Board, tones: Colors) -> Bars | None:
    """Return every last row against the tuned baseline."""
    ordered = sorted(of_gpu.last, key=lambda r: (r.kernel, r.optimizer, r.seed or 0))
    return figures.bars([_run(of_gpu, r, tones) for r in ordered])


def _run(of_gpu: Board, r: Row, tones: Colors) -> Beside:
    ratio, seed = r.ratio(TUNED), "" if r.seed is None else f", seed {r.seed}"
    text = "failed: 1" if r.failed else interval(ratio) if r.winner else "no winner: 1"
    return Beside(r.kernel, f"{r.optimizer}{seed}", tones[r.optimizer], ratio, text, page(of_gpu, r.kernel))


def _who(r: Row) -> str:
    seed = "" if r.seed is None else f", seed {r.seed}"
    state = "failed" if r.failed else "" if r.winner else "no winner"
    return f"{r.optimizer}{seed}" + (f": {state}" if state else "")


def _card(of_gpu: Board, kernel: str) -> Values:
    best, count = of_gpu.best(kernel), sum(r.kernel == kernel for r in of_gpu.last)
    return {
        "kernel": kernel,
        "of": f"of tuned, the best of {count} runs" if count > 1 else "of tuned",
        "page": page(of_gpu, kernel),
        "interval": interval(best.ratio(TUNED)).partition(" ")[2],
        "mid": f"{best.middle(TUNED):.3f}",
        "moves": list(best.winner.moves) if best.winner else [],
        "judged": len(best.candidates),
        "failed": best.failed,
        "library": _range([c.reached(c.delivered, best.environment).of_library for c in best.cases.values()]),
        "peak": _range([c.reached(c.delivered, best.environment).of_peak for c in best.cases.values()]),
    }


def _range(shares: Sequence[float | None]) -> str:
    recorded = [s for s in shares if s is not None]
    if not recorded:
        return ""
    low, high = f"{100 * min(recorded):.0f}", f"{100 * max(recorded):.0f}"
    return f"{low} %" if low == high else f"{low} to {high} %"


def against_itself(rows: Sequence[Row], tones: Colors) -> Bars | None:
    """Return the shipped kernel timed twice in one session, as two sides: how far the timer is off."""
    noises = ((r, n, c.noise) for r in rows for n, c in r.cases.items())
    return figures.bars([Beside(_case_name(n), _who(r), tones[r.optimizer], i, interval(i)) for r, n, i in noises])


def _case_name(case: str) -> str:
    return case.split("/", 1)[-1]


def versions(rows: Sequence[Row]) -> str:
    told = [r.environment.as_json() for r in rows]
    by_name = [(name, sorted({str(e[name]) for e in told if e.get(name)})) for name in VERSIONS]
    commits = sorted({short(r.commit) for r in rows})
    texts = [f"{name} {' and '.join(versions)}" for name, versions in (*by_name, ("commit", commits)) if versions]
    return ", ".join(texts)


# a kernel's page ------------------------------------------------------------------------------------------------------


def kernel(of_gpu: Board, name: str, tones: Colors) -> Values:
    of_kernel = of_gpu.of(name)
    last, best = of_kernel.last, of_kernel.best(name)
    return {
        "kernel": name,
        "gpu": of_gpu.gpu,
        "versions": versions(last),
        "best": _card(of_gpu, name),
        "winner": best.winner,
        "who": _who(best),
        "diff": _diff(best.winner.diff) if best.winner else [],
        "runs": [_row(r, tones) for r in last],
        "legend": [(o, tones[o]) for o in of_kernel.optimizers],
        "trend": figures.trend(of_kernel, tones),
        "searches": [chart for chart in (figures.by_candidates(last, tones), figures.by_seconds(last, tones)) if chart],
        "cases": _cases(best),
        "by_case": _by_case(best, tones),
        "tried": [_tried(r) for r in last if r.candidates],
        "aa": against_itself(last, tones),
    }


def _row(r: Row, tones: Colors) -> Values:
    counted = ", ".join(f"{n} {v}" for v, n in r.verdicts.most_common())
    spent = (
        f"{r.gpu_seconds:,.0f} s" if r.gpu_seconds is not None else "",
        "" if r.tokens is None else f"{r.tokens:,}",
    )
    money = "" if r.money is None else f"{r.money:.2f}"
    return {
        "optimizer": r.optimizer,
        "color": tones[r.optimizer],
        "seed": "" if r.seed is None else str(r.seed),
        "failed": r.failed,
        "ratios": ["1" if r.failed or not r.winner else interval(r.ratio(b)) for b in (TUNED, SHIPPED)],
        "counted": counted,
        "spent": [*spent, money],
        "models": ", ".join(r.models),
        "prompts": len(r.prompts),
        "templates": r.templates[:12] if r.prompts else "",
        "run": r.run,
        "when": r.when[:16].replace("T", " "),
        "commit": short(r.commit),
        "file": r.file,
    }


def _cases(r: Row) -> Values:
    """Rates of every side, case by case, and what is delivered as a part of the fastest library and the peak."""
    picked = [AUTOTUNED] if any(AUTOTUNED in c.ms for c in r.cases.values()) else []
    sides = [SHIPPED, *picked, TUNED, *([WINNER] if r.winner else []), *r.libraries]
    return {
        "sides": sides,
        "picked": slower(r),
        "unfit": list(shipped_configurations.lines(r.unfit)),
        "rows": [_case(n, c, sides, r) for n, c in r.cases.items()],
        "peaks": ", ".join(_peaks(r.environment)),
    }


def _case(name: str, c: Case, sides: Sequence[str], r: Row) -> Values:
    reached = {s: c.reached(s, r.environment) for s in c.ms}
    delivered = reached[c.delivered]
    rates = [f"{reached[s].rate:,.0f}" if s in reached and reached[s].rate is not None else "-" for s in sides]
    refused = {s: no_time(cases[name]) for s, cases in (r.refused or {}).items() if name in cases and s not in reached}
    rates = [refused.get(s, rate) for s, rate in zip(sides, rates, strict=True)]
    plan = c.plans.get(c.delivered, {})
    return {
        "name": _case_name(name),
        "unit": delivered.unit,
        "rates": rates,
        "library": _percent(delivered.of_library),
        "peak": _percent(delivered.of_peak),
        "choice": plan.get("choice", ""),
        "plan": str(plan.get("plan_id") or "")[:12],
        "rounds": len(c.ms[c.delivered]),
    }


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"


def _peaks(environment: Environment) -> list[str]:
    return [f"{peak:,.0f} {unit}" for unit, peak in environment.peaks.items() if peak]


def _by_case(r: Row, tones: Colors) -> Bars | None:
    if r.winner is None:
        return None
    ratios = ((n, b, c.ratio(b)) for n, c in r.cases.items() for b in BASES)
    return figures.bars([Beside(_case_name(n), f"of {b}", tones[r.optimizer], i, interval(i)) for n, b, i in ratios])


def _tried(r: Row) -> Values:
    rows = [
        (t.move, t.verdict, t.stage, f"{t.speedup:.3f}" if t.speedup else "-", f"{t.seconds:.1f}", t.reason)
        for t in r.candidates
    ]
    return {"who": _who(r), "count": len(rows), "rows": rows}


def _diff(text: str) -> list[tuple[str, str]]:
    """Lines with what each is: added, taken, a place, or as before."""
    kinds = {"+": "added", "-": "taken", "@": "place"}
    lines = text.splitlines()
    return [("head" if n < 2 else kinds.get(line[:1], "same"), line) for n, line in enumerate(lines)]
