"""Profiles in the record of a run: which passes were taken of a candidate's case, and its summary.

Relies on `store.py`. What the passes said in full is in the content store, under their own keys: see
`sandbox/profile/`.
"""

import contextlib
import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

from pgo_agent.agent.profile.summary import Summary
from pgo_agent.agent.run.record.database import Database
from pgo_agent.sandbox.json_codec import Malformed


@dataclass(frozen=True)
class Kept:
    """One case of a candidate, or of the kernel as shipped."""

    candidate: str  # or `shipped`
    case: str
    passes: Mapping[str, str]  # name -> why it is not there; empty: it is
    seconds: float
    summary: Summary | None  # None until it is made, and where no pass was
    author: str | None = None  # the model that wrote the summary; None: it is embedded

    @property
    def taken(self) -> tuple[str, ...]:
        """The passes that are there."""
        return tuple(name for name, why in self.passes.items() if not why)


def add(db: Database, run: str, kept: Kept) -> None:
    """A profile, or why there is none. One that is there already stays."""
    with db.transaction() as open_:
        values = (run, kept.candidate, kept.case, json.dumps(dict(kept.passes)), kept.seconds)
        open_.execute("INSERT OR IGNORE INTO profiles VALUES (?, ?, ?, ?, ?, NULL, NULL)", values)


def finish(db: Database, run: str, kept: Kept) -> None:
    """What a recorded profile says in short; or that it is lost."""
    summary = json.dumps(kept.summary.as_json()) if kept.summary else None
    with db.transaction() as open_:
        sql = 'UPDATE profiles SET passes = ?, summary = ?, author = ? WHERE run = ? AND candidate = ? AND "case" = ?'
        open_.execute(sql, (json.dumps(dict(kept.passes)), summary, kept.author, run, kept.candidate, kept.case))


def of(db: Database, run: str, candidate: str | None = None) -> list[Kept]:
    """The profiles of a candidate, or of all, in the order in which they were recorded."""
    sql = "SELECT * FROM profiles WHERE run = ? AND (? IS NULL OR candidate = ?) ORDER BY rowid"
    return [_kept(r) for r in db.rows(sql, (run, candidate, candidate))]


def _kept(row: sqlite3.Row) -> Kept:
    summary = None
    with contextlib.suppress(Malformed):  # of another version: it is made anew
        summary = Summary.from_json(json.loads(row["summary"])) if row["summary"] else None
    return Kept(row["candidate"], row["case"], json.loads(row["passes"]), row["seconds"], summary, row["author"])
