"""Tables of the recorded runs of kernels that ship: what each came to beside its libraries, and every candidate.

Made of `evals/results/` alone. Ratios are taken within one session on one GPU; each table names its GPU, versions and
commit. A run that found no improvement says so: its winner column stays empty.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pgo_agent.agent.run.record.run_summary import no_time
from pgo_agent.agent.run.record.shipped_results import RecordedLine, rows
from pgo_agent.agent.version import short
from pgo_agent.evals.nightly import load
from pgo_agent.evals.nightly.report import interval
from pgo_agent.evals.nightly.row import BASES, SHIPPED, TUNED, WINNER, Case, Row
from pgo_agent.evals.runner.folders import RESULTS
from pgo_agent.sandbox import devices
from pgo_agent.sandbox.judge.machine import Environment

TRIED = "candidates.md"  # beside the records
_HEAD = """Figures are how many times faster
than its incumbent a candidate ran, in one session: of all cases the geometric mean, then each. A candidate that was
slower at the quick look was timed no further.
"""


def tables() -> str:
    """Return a Markdown table for every recorded run, in order of target."""
    verdicts = _by_run("verdict")
    return "\n".join(f"{_table(row, who)}{_won(verdicts[row.run])}\n" for row, who in _recorded(verdicts))


def gains() -> str:
    """Return what the winner of each recorded run gained over both baselines: a Markdown table, a line for each run."""
    lines = ["| kernel | GPU | rewrites by | over as shipped | over tuned | each case, over tuned |"]
    lines.append("|---|---|---|---:|---:|---:|")
    for row, who in _recorded(_by_run("verdict")):
        cells = ["no candidate was faster", "", ""]
        if row.winner:
            each = [case.ratio(TUNED).mid for case in row.cases.values()]
            means = (row.ratio(SHIPPED).mid, row.ratio(TUNED).mid)
            cells = [*(f"{mean:.3f}x" for mean in means), f"{min(each):.3f}x to {max(each):.3f}x"]
        lines.append("| " + " | ".join([f"`{row.kernel}`", _short(row.gpu), who, *cells]) + " |")
    return "\n".join(lines) + "\n"


def _short(gpu: str) -> str:
    """Return a GPU's name as people call it: "H100" of "NVIDIA H100 80GB HBM3"."""
    device = devices.named(gpu)
    return device.key.upper() if device else gpu


def _recorded(verdicts: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[tuple[Row, str]]:
    """Return the row of every recorded run, with who proposed its candidates; in order of target. `verdicts`: by
    run."""
    runs = [r for r in load.files(sorted(RESULTS.glob("*.jsonl"))).rows if r.run in verdicts]
    return sorted(((r, by(verdicts[r.run][0])) for r in runs), key=lambda pair: (pair[0].kernel, pair[1]))


def _by_run(what: str) -> dict[str, list[RecordedLine]]:
    """Run -> its lines of one kind, in order."""
    by_run: dict[str, list[RecordedLine]] = {}
    for line in rows():
        if line["what"] == what:
            by_run.setdefault(line["run"], []).append(line)
    return by_run


def by(row: Mapping[str, Any]) -> str:
    """Return who proposed the candidates of a row's run."""
    return " and ".join(["moves", *row.get("models", [])])


def _won(verdicts: Sequence[RecordedLine]) -> str:
    """Who won, among how many."""
    names = ", then ".join(f"{_named(r)} ({r['speedup']:.3f}x of the incumbent)" for r in _descent(verdicts))
    file = f"Each with its ratios: `evals/results/{TRIED}`."
    return f"{len(verdicts)} candidates judged; accepted: {names or 'none'}. {file}\n"


def _descent(verdicts: Sequence[RecordedLine]) -> list[RecordedLine]:
    """Return the candidates that led to a run's winner, each measured against the one before; the winner comes last."""
    by_id = {v["candidate"]: v for v in verdicts}
    name, descent = verdicts[0]["winner"], list[RecordedLine]()
    while name in by_id:
        descent.append(by_id[name])
        name = by_id[name]["against"]
    return descent[::-1]


def _named(verdict: RecordedLine) -> str:
    """Return the name of a move, or the first words of the idea that a model gave."""
    if verdict.get("author", "embedded").startswith("embedded"):
        return str(verdict["move"])
    return f'"{verdict["idea"].partition(":")[0].splitlines()[0]}" by {verdict["author"]}'


def tried() -> str:
    """Return what every candidate of the recorded runs came to: a Markdown table for each target."""
    runs = {f"{r[0]['target']} by {by(r[0])}, {r[0]['environment']['gpu']}": r for r in _by_run("verdict").values()}
    head = (
        "# Every candidate of the recorded runs\n\nWritten by `python -m pgo_agent.evals.tables README.md docs/*.md`. "
        + _HEAD
    )
    return head + "".join(f"\n## {name}\n\n{_verdicts(verdicts)}" for name, verdicts in sorted(runs.items()))


def _verdicts(verdicts: Sequence[RecordedLine]) -> str:
    cases = list(dict.fromkeys(c for r in verdicts for c in r["ratios"]))
    columns = ["candidate", "made of", "verdict", "stage", "of the incumbent", *(c.split("/", 1)[1] for c in cases)]
    lines = ["| " + " | ".join(columns) + " |", "|---|---|---|---|" + "---:|" * (len(cases) + 1)]
    for r in verdicts:
        ratios = [f"{r['ratios'][c]:.3f}" if c in r["ratios"] else "-" for c in cases]
        total = f"{r['speedup']:.3f}" if r["speedup"] else "-"
        lines.append("| " + " | ".join([_named(r), r["on"], r["verdict"], r["stage"], total, *ratios]) + " |")
    return "\n".join(lines) + "\n"


def _table(row: Row, who: str) -> str:
    libraries = row.libraries
    columns = [f"`{row.kernel}` by {who}", "as shipped", "tuned", "winner", "winner / tuned", *libraries]
    lines = ["| " + " | ".join(columns) + " |", "|---|" + "---:|" * (len(columns) - 1)]
    for name, case in row.cases.items():
        unit = case.reached(SHIPPED, row.environment).unit
        rates = [_rate(row, case, side) for side in (*BASES, WINNER)]
        ratio = interval(case.ratio(TUNED)) if row.winner else "-"
        none = {n: no_time(why) for n in libraries if (why := (row.refused or {}).get(n, {}).get(name))}
        cells = [*rates, ratio, *(_rate(row, case, n, none.get(n, "-")) for n in libraries)]
        lines.append("| " + " | ".join([f"{name.split('/', 1)[1]} ({unit})", *cells]) + " |")
    won = f"Geometric mean {interval(row.ratio(TUNED))} of tuned."
    total = won if row.winner else "No candidate beat the kernel beyond the noise."
    rounds = len(next(iter(row.cases.values())).ms[SHIPPED])
    lines.append(f"\n{total} {measured_on(row.environment, row.commit)}; {rounds} rounds, 95 % bootstrap intervals.\n")
    return "\n".join(lines)


def _rate(row: Row, case: Case, side: str, none: str = "-") -> str:
    return f"{case.reached(side, row.environment).rate:.0f}" if side in case.ms else none


def measured_on(environment: Environment, *commits: str) -> str:
    """Return the machine and the versions that something was measured with."""
    versions = f"driver {environment.driver}, torch {environment.torch}, triton {environment.triton}"
    return f"{environment.gpu}, {versions}, {of_commits(commits)}"


def of_commits(commits: Iterable[str]) -> str:
    """Return each commit once, in alphabetical order."""
    return f"commit {', '.join(map(short, sorted(set(commits))))}"
