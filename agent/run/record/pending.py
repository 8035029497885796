"""Candidates that were looked at or measured and wait for more, in the record of a run: see `schedule.py`.

A row is gone as soon as its candidate has a verdict (`store.py` sees to that), whose evidence then holds all of it.
"""

import json
from dataclasses import dataclass

from pgo_agent.agent.run.record.database import Database
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict, from_json

LOOKED, MEASURED = "looked at", "measured"


@dataclass(frozen=True)
class Waiting:
    """What was said of a candidate so far."""

    candidate: str
    judged: Judgement
    speedup: float  # over the incumbent that its generation began with
    seconds: float  # of the GPU

    @property
    def measured(self) -> bool:
        """Whether it waits for its proof; or else, after a first look, for all else."""
        return self.judged.verdict != Verdict.CHECKED


def add(db: Database, run: str, waiting: Waiting) -> None:
    """A candidate that has a verdict by now, as by a veto, waits for nothing."""
    judged = json.dumps(waiting.judged.as_json())
    told = {"run": run, "speedup": waiting.speedup, "seconds": waiting.seconds, "judged": judged}
    with db.transaction() as opened:
        opened.execute(
            "INSERT OR REPLACE INTO measured SELECT :run, id, :judged, :speedup, :seconds FROM candidates"
            " WHERE run = :run AND id = :candidate AND verdict IS NULL",
            told | {"candidate": waiting.candidate},
        )


def of(db: Database, run: str) -> dict[str, Waiting]:
    """By candidate, those without a verdict."""
    rows = db.rows("SELECT candidate, judged, speedup, seconds FROM measured WHERE run = ?", (run,))
    found = (Waiting(r["candidate"], from_json(json.loads(r["judged"])), r["speedup"], r["seconds"]) for r in rows)
    return {w.candidate: w for w in found}


def told(db: Database, run: str) -> dict[str, tuple[str, float]]:
    """By candidate, how far it is, and the speedup."""
    sql = "SELECT candidate, speedup, json_extract(judged, '$.verdict') AS verdict FROM measured WHERE run = ?"
    return {r["candidate"]: (_far(r["verdict"]), r["speedup"]) for r in db.rows(sql, (run,))}


def _far(verdict: str) -> str:
    return LOOKED if verdict == Verdict.CHECKED else MEASURED
