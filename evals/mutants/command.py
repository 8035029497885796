"""The work of `pgo-agent eval mutants`: which mutants, what became of them, what is printed."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.evals.mutants import generate, report, run
from pgo_agent.evals.mutants.generate import Mutant
from pgo_agent.evals.mutants.results import Results, Row


def main(
    part: str | None,
    operators: Sequence[str],
    sample: int | None,
    seed: int,
    settings: RunSettings,
    file: Path | None,
    as_json: bool,
) -> int:
    """Judge mutants, or take from the file what is known of them, and print the outcome; return the exit code."""
    chosen = generate.chosen(generate.bases(part, settings), part, operators, sample, seed)
    results = Results(file)

    def report_row(row: Row) -> None:
        if as_json:
            print(json.dumps(row), flush=True)

    run.run(chosen, settings, results, lambda text: print(text, file=sys.stderr, flush=True), report_row)
    names = {x.name for m in chosen for x in (m, Mutant(m.base, None))}
    result = report.of_rows({name: row for name, row in results.rows.items() if name in names})
    (report.as_json if as_json else report.show)(result)
    return result.code
