"""Candidates that were looked at or measured and wait for more, in the record of a run: see `schedule.py`.

`store.py` deletes the row as soon as the candidate has a verdict, whose evidence then holds everything.
"""

import json
from dataclasses import dataclass

from pgo_agent.agent.run.record.database import Database
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict

LOOKED, MEASURED = "looked at", "measured"


@dataclass(frozen=True)
class Waiting:
    """The judgement on a candidate so far."""

    candidate: str
    judged: Judgement
    speedup: float  # over the incumbent that its generation began with
    seconds: float  # of the GPU

    @property
    def measured(self) -> bool:
        """Whether it was measured and waits for its proof; if not, it only had a first look."""
        return self.judged.verdict != Verdict.CHECKED


def add(db: Database, run: str, waiting: Waiting) -> None:
    """Record a waiting candidate, unless it has a verdict by now, such as a veto."""
    judged = json.dumps(waiting.judged.as_json())
    values = {"run": run, "speedup": waiting.speedup, "seconds": waiting.seconds, "judged": judged}
    with db.transaction() as opened:
        opened.execute(
            "INSERT OR REPLACE INTO measured SELECT :run, id, :judged, :speedup, :seconds FROM candidates"
            " WHERE run = :run AND id = :candidate AND verdict IS NULL",
            values | {"candidate": waiting.candidate},
        )


def of(db: Database, run: str) -> dict[str, Waiting]:
    """Return candidate -> its waiting judgement, of those without a verdict."""
    rows = db.rows("SELECT candidate, judged, speedup, seconds FROM measured WHERE run = ?", (run,))
    waiting = (
        Waiting(r["candidate"], Judgement.from_json(json.loads(r["judged"])), r["speedup"], r["seconds"]) for r in rows
    )
    return {w.candidate: w for w in waiting}


def progress(db: Database, run: str) -> dict[str, tuple[str, float]]:
    """Return candidate -> how far it is (LOOKED or MEASURED), and its speedup."""
    sql = "SELECT candidate, speedup, json_extract(judged, '$.verdict') AS verdict FROM measured WHERE run = ?"
    return {r["candidate"]: (_far(r["verdict"]), r["speedup"]) for r in db.rows(sql, (run,))}


def _far(verdict: str) -> str:
    return LOOKED if verdict == Verdict.CHECKED else MEASURED
