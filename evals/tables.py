"""`python -m pgo_agent.evals.tables README.md docs/*.md`: writes their tables anew, and results/candidates.md.

Tables of results are made of recorded evidence alone, that of moves of what each move says of itself. Those of recorded
runs are in `recorded_runs.py`.
"""

import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import cast

from pgo_agent.agent.moves.catalogue import SOURCE_MOVES
from pgo_agent.agent.run.record.shipped_results import rows
from pgo_agent.evals.ablation import beside, by_generation
from pgo_agent.evals.ablation import run as ablation
from pgo_agent.evals.field import outcome
from pgo_agent.evals.field import report as field_report
from pgo_agent.evals.field import run as field_run
from pgo_agent.evals.field.suite import FOLDER
from pgo_agent.evals.gate import entries as corpora
from pgo_agent.evals.gate import report as gate_report
from pgo_agent.evals.gate.report import GateLine
from pgo_agent.evals.leaderboard.rank import noise as noise_of
from pgo_agent.evals.mutants import report
from pgo_agent.evals.mutants.outcomes import FATES
from pgo_agent.evals.mutants.results import Results
from pgo_agent.evals.nightly import load
from pgo_agent.evals.nightly.row import BASES, Row
from pgo_agent.evals.problems import run as problems
from pgo_agent.evals.recorded_runs import TRIED, gains, measured_on, of_commits, tables, tried
from pgo_agent.evals.runner.folders import RESULTS
from pgo_agent.sandbox.judge.machine import Environment
from pgo_agent.sandbox.target import COMPILED

MUTANTS_CPU, MUTANTS_GPU = "mutants-cpu.jsonl", "mutants-h100.jsonl"
ABLATIONS = "ablation-model"
FIELD = FOLDER / "results"


def nights() -> str:
    """Return what each run of the recorded nights came to, of tuned: a Markdown table, a line for each GPU."""
    recorded = load.files(sorted(RESULTS.glob("nightly-*.jsonl")))
    kernels = sorted({r.kernel for r in recorded.rows})
    columns = ["of tuned, each seed", *(f"`{k}`" for k in kernels), "intervals of the timer against itself that hold 1"]
    lines = ["| " + " | ".join(columns) + " |", "|---|" + "---:|" * (len(columns) - 1)]
    machines = []
    for gpu in sorted({r.gpu for r in recorded.rows}):
        of_gpu = sorted((r for r in recorded.rows if r.gpu == gpu), key=lambda r: r.seed or 0)
        by_kernel = [", ".join(f"{r.middle('tuned'):.3f}" for r in of_gpu if r.kernel == k) or "-" for k in kernels]
        noise = noise_of(of_gpu)
        lines.append("| " + " | ".join([gpu, *by_kernel, f"{noise['holds']} of {noise['cases']}"]) + " |")
        machines.append(measured_on(of_gpu[0].environment, of_gpu[0].commit))
    notes = "".join(f" {note}." for note in recorded.notes)
    return "\n".join(lines) + f"\n\n{'; '.join(machines)}.{notes}\n"


def gate() -> str:
    """Return what became of the corpora on a GPU: a Markdown table of the groups, and which stages refused the bad."""
    recorded = cast(list[GateLine], list(rows()))
    counts = gate_report.rates(recorded)
    if counts is None:
        return "Not recorded on a GPU yet.\n"
    lines = ["| corpus | entries | refused | admitted | undecided |", "|---|---:|---:|---:|---:|"]
    lines += [
        f"| {group} | {' | '.join(map(str, standings.values()))} |" for group, standings in counts["groups"].items()
    ]
    refused = ", ".join(f"{stage} {n}" for stage, n in counts["refused_by"].items())
    batches = [r for r in recorded if r["what"] == gate_report.BATCH]
    rates = ", ".join(f"{b['target']} {60 * b['entries'] / b['wall']:.1f}" for b in batches)
    medians = ", ".join(f"{stage} {seconds:.2g}" for stage, seconds in counts["seconds"].items())
    entries = {r["entry"]: r["commit"] for r in recorded if r["what"] == gate_report.ENTRY}
    left = sum(e.name not in entries for e in corpora.load())
    reached = f" {left} entries were not reached in the time on a GPU that there was." if left else ""
    lines.append(
        f"\nUndecided: the clock did not tell, and nothing is recorded as faster.{reached} Refused at: {refused}. "
        f"{counts['per_minute']:.1f} candidates a minute, baselines and builds included ({rates}). Seconds of a stage, "
        f"in the median: {medians}. {measured_on(Environment.from_json(counts['environment']), *entries.values())}.\n"
    )
    return "\n".join(lines)


def mutants(file: str) -> str:
    """Return what became of recorded mutants: a Markdown table of the kinds of change, who caught them, and who
    survived."""
    result = report.of_rows(Results(RESULTS / file).rows)
    counted = result.summary()
    lines = ["| change | tried | " + " | ".join(FATES) + " |", "|---|---:|" + "---:|" * len(FATES)]
    for name, counts in {**counted["operators"], "all": counted["fates"]}.items():
        lines.append(f"| {name} | {sum(counts.values())} | " + " | ".join(map(str, counts.values())) + " |")
    caught = ", ".join(f"{n} {by}" for by, n in counted["caught_by"].items())
    survived = "".join(f"- `{r['mutant']}`: `{r['after']}`\n" for r in result.survivors)
    commits = [r["commit"] for r, _ in result.mutants]
    measured = [r["environment"] for r, _ in result.mutants if r["measured"]]
    where = (
        measured_on(Environment.from_json(measured[0]), *commits)
        if measured
        else f"Without a GPU, {of_commits(commits)}"
    )
    lines.append(f"\nOf {len(counted['bases'])} kernels. {where}. Caught as: {caught}.\n")
    return "\n".join(lines) + (f"\nSurvived:\n\n{survived}" if survived else "")


def field() -> str:
    """Return how far the kernels of public packages came: a Markdown table, a line for each."""
    made = list(field_run.read(FIELD / "targets.jsonl").values())
    by_when = sorted(load.files([FIELD / "h100.jsonl", FIELD / "h200.jsonl"]).rows, key=lambda r: r.when)
    runs = {r.kernel: r for r in by_when}  # the newest of each
    columns = ["kernel", "package", "lines by hand", "as shipped, ms", "tuned, ms", "`torch.compile`, ms"]
    columns += ["over as shipped", "over tuned", "over `torch.compile`", "won by, or what stood in the way"]
    table = ["| " + " | ".join(columns) + " |", "|---|---|" + "---:|" * (len(columns) - 3) + "---|"]
    for o in outcome.of(made, runs):
        by_hand = str(o.target.by_hand) if o.target else "-"
        table.append("| " + " | ".join([f"`{o.kernel}`", o.package, by_hand, *field_report.cells(o)]) + " |")
    counted = field_report.line(field_report.summary(made, runs))
    return "\n".join(table) + f"\n\n{counted[0].upper()}{counted[1:]}. {_on_each_gpu(runs.values())}.\n"


def _on_each_gpu(rows: Collection[Row]) -> str:
    """Return where runs were made: the GPU of most by itself, each other with the kernels that it ran."""
    by_gpu: dict[str | None, list[Row]] = {}
    for row in rows:
        by_gpu.setdefault(row.environment.gpu, []).append(row)
    most, *others = sorted(by_gpu.values(), key=len, reverse=True)
    ran = [f"{_where(o)}: {', '.join(f'`{r.kernel}`' for r in o)}" for o in others]
    return "; ".join([_where(most), *ran])


def _where(rows: Collection[Row]) -> str:
    return measured_on(next(iter(rows)).environment, *(r.commit for r in rows))


def field_by_model() -> str:
    """Return what a model won on kernels of public packages: a Markdown table, a line for each run."""
    runs = sorted(load.files([FIELD / "h100-model.jsonl"]).rows, key=lambda r: r.kernel)
    columns = ["kernel", "model", "over as shipped", "over tuned", "over `torch.compile`", "won by"]
    table = ["| " + " | ".join(columns) + " |", "|---|---|" + "---:|" * (len(columns) - 3) + "---|"]
    outcomes = [outcome.Outcome(r.kernel, None, r) for r in runs]
    for o in outcomes:
        over = [field_report.number(o.over(side), "1" if o.failed else "") for side in BASES]
        over.append(field_report.number(o.over(COMPILED)))
        models = ", ".join(o.row.models) if o.row else ""
        table.append("| " + " | ".join([f"`{o.kernel}`", models, *over, o.why]) + " |")
    means = ", ".join(f"{outcome.mean(outcomes, b):.3f}x of {b}" for b in BASES)
    where = measured_on(runs[0].environment, *(r.commit for r in runs))
    return "\n".join(table) + f"\n\nGeometric mean {means}. {where}.\n"


def of_problems() -> str:
    """Return how far the problems in KernelBench's form came: a Markdown table, a line for each."""
    listed = problems.read()
    count = ", ".join(f"{n} {what}" for what, n in problems.counted(listed).items())
    where = "Without a GPU, so nothing is measured; triton 3.6.0, torch 2.13.0, commits of 2026-11-26, two busy cores"
    return f"{problems.table(listed)}\n{count[0].upper()}{count[1:]}. {where}.\n"


def ablations() -> str:
    """Return what came of each recorded ablation with models: Markdown tables of arms, with the differences below."""
    sections = [of_an_ablation(path) for path in sorted(RESULTS.glob(f"{ABLATIONS}-*.jsonl"), key=lambda p: p.stem)]
    return "\n".join(sections) or "No rows are recorded yet.\n"


def of_an_ablation(path: Path) -> str:
    """Return the section of one file of rows."""
    results = ablation.opened(path)
    ended = [row for w in results.plan.runs if (row := results.ended(w))]
    measured = [row["environment"] for row in ended if row["environment"]]
    where = measured_on(Environment.from_json(measured[0]), *{str(row["commit"]) for row in ended}) if measured else ""
    left, every = len(results.missing), len(results.plan.runs)
    said = f"**{left} of {every} runs are not made yet: nothing is decided by these.**\n\n" if left else ""
    earlier = next((p for p in path.parent.glob(f"{ABLATIONS}-*.jsonl") if path.stem.startswith(f"{p.stem}-")), None)
    more = "".join(f"- {line}\n" for line in beside.lines(results, ablation.opened(earlier))) if earlier else ""
    return f"{said}{by_generation.markdown(results)}{more}\n`evals/results/{path.name}`. {where}.\n"


def moves() -> str:
    """Return a Markdown table of the source moves: the symptom that each answers, and what is known of its gain."""
    head = "| source move | symptom | known of its gain | sm |\n|---|---|---|---|\n"
    return head + "".join(
        f"| {m.name} | {m.symptom} | {m.gain} | {', '.join(map(str, m.archs))} |\n" for m in SOURCE_MOVES
    )


def between(text: str, marker: str, content: Iterable[str] | str) -> str:
    """Return `text` with what stands between <!-- marker --> and <!-- /marker --> replaced."""
    start, end = f"<!-- {marker} -->\n", f"<!-- /{marker} -->"
    head, rest = text.split(start, 1)
    return head + start + "".join(content) + end + rest.split(end, 1)[1]


TABLES: Mapping[str, Callable[[], str]] = {
    "gains": gains,
    "results": tables,
    "nights": nights,
    "gate": gate,
    "mutants": partial(mutants, MUTANTS_CPU),
    "mutants on a GPU": partial(mutants, MUTANTS_GPU),
    "field": field,
    "field by a model": field_by_model,
    "problems": of_problems,
    "ablation by a model": ablations,
    "moves": moves,
}


def main() -> None:
    for path in map(Path, sys.argv[1:]):
        text = path.read_text()
        for marker, content in TABLES.items():
            if f"<!-- {marker} -->" in text:
                text = between(text, marker, content())
        path.write_text(text)
    (RESULTS / TRIED).write_text(tried())


if __name__ == "__main__":
    main()
