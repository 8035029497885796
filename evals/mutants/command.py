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
    asked: RunSettings,
    file: Path | None,
    as_json: bool,
) -> int:
    """Judges mutants, or takes from the file what is known of them, and prints the outcome; gives the exit code."""
    chosen = generate.chosen(generate.bases(part, asked), part, operators, sample, seed)
    results = Results(file)

    def each(row: Row) -> None:
        if as_json:
            print(json.dumps(row), flush=True)

    run.run(chosen, asked, results, lambda text: print(text, file=sys.stderr, flush=True), each)
    names = {x.name for m in chosen for x in (m, Mutant(m.base, None))}
    found = report.told({name: row for name, row in results.rows.items() if name in names})
    (report.as_json if as_json else report.show)(found)
    return found.code
