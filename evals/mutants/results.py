"""What became of mutants, as rows of a file: a run that is ended goes on where it was, and adds to what is known.

A row holds for the very text that it was made of, by a digest. Relies on `gate.Outcome` for what the gate said.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

from pgo_agent.agent.version import commit_of
from pgo_agent.evals.gate.run import Outcome
from pgo_agent.evals.mutants.generate import Mutant
from pgo_agent.sandbox.json_codec import JsonObject

WHAT = "mutant"
Row = Mapping[str, Any]


class RowLine(TypedDict):
    """What became of one mutant, or of a base as it is: a Row that is written."""

    what: str
    mutant: str
    base: str
    target: str
    operator: str  # empty: the base as it is
    before: str
    after: str
    digest: str
    verdict: str
    stage: str
    reason: str
    plans: str  # digest of all plans with their code; empty: nothing was built
    bits: JsonObject | None  # how its bits compare with its base's, where asked
    measured: bool
    seconds: float
    environment: JsonObject | None
    commit: str


def row(m: Mutant, o: Outcome, bits: JsonObject | None = None) -> RowLine:
    """Return the row of a mutant: what the gate said of it, and how its bits compare with its base's, where asked."""
    change = m.change
    return {
        "what": WHAT,
        "mutant": m.name,
        "base": m.base.name,
        "target": m.base.target,
        "operator": change.operator if change else "",
        "before": change.before if change else "",
        "after": change.after if change else "",
        "digest": m.digest,
        "verdict": str(o.verdict),
        "stage": o.stage,
        "reason": o.reason,
        "plans": _digest(o),
        "bits": bits,
        "measured": o.measured,
        "seconds": round(sum(o.seconds.values()), 2),
        "environment": o.environment.as_json() if o.environment else None,
        "commit": commit_of(),
    }


def _digest(o: Outcome) -> str:
    """Of all plans with their code; empty where nothing was built."""
    return hashlib.sha256(json.dumps(sorted(o.launched)).encode()).hexdigest()[:16] if o.launched else ""


class Results:
    """Rows by name, and the file that they are kept in."""

    def __init__(self, file: Path | None) -> None:
        """Read what the file holds; a last line that was cut off counts as not written."""
        self._file = file
        self.rows: dict[str, Row] = {}
        lines = file.read_text().split("\n") if file and file.is_file() else []
        for line in lines[:-1]:
            row = json.loads(line)
            self.rows[row["mutant"]] = row
        if file and lines and lines[-1]:
            file.write_text("".join(f"{line}\n" for line in lines[:-1]))

    def known(self, m: Mutant) -> bool:
        """Return whether there is a result of this very text."""
        return self.rows.get(m.name, {}).get("digest") == m.digest

    def add(self, row: Row) -> None:
        self.rows[row["mutant"]] = row
        if self._file:
            with self._file.open("a") as f:
                f.write(json.dumps(row) + "\n")
