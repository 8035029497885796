"""Candidates that were measured and wait for their proof, in the record of a run: see `proving.py`.

A row is gone as soon as its candidate has a verdict (`store.py` sees to that), whose evidence then holds all of it.
"""

import json
from dataclasses import dataclass

from pgo_agent.agent.database import Database
from pgo_agent.sandbox.gate.verdict import Judged, from_json


@dataclass(frozen=True)
class Waiting:
    """What the first process said of a candidate."""

    candidate: str
    judged: Judged
    speedup: float  # over the incumbent that its generation began with
    seconds: float  # of the GPU


def add(db: Database, run: str, waiting: Waiting) -> None:
    with db.transaction() as opened:
        told = (run, waiting.candidate, json.dumps(waiting.judged.as_json()), waiting.speedup, waiting.seconds)
        opened.execute("INSERT OR REPLACE INTO measured VALUES (?, ?, ?, ?, ?)", told)


def of(db: Database, run: str) -> dict[str, Waiting]:
    """By candidate, those without a verdict."""
    rows = db.rows("SELECT candidate, judged, speedup, seconds FROM measured WHERE run = ?", (run,))
    found = (Waiting(r["candidate"], from_json(json.loads(r["judged"])), r["speedup"], r["seconds"]) for r in rows)
    return {w.candidate: w for w in found}


def speedups(db: Database, run: str) -> dict[str, float]:
    """The same without what was said."""
    rows = db.rows("SELECT candidate, speedup FROM measured WHERE run = ?", (run,))
    return {r["candidate"]: r["speedup"] for r in rows}
