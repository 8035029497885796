"""Profiles in the record of a run: the whole profile, which passes gave an answer, and the summary.

A row refers by hash to the whole profile in the content store, and that refers by hash to large artefacts. Relies on
`database.py` and `sandbox/json_codec.py`. It runs no pass.
"""

import contextlib
import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

from pgo_agent.agent.profile.case_profile import CaseProfile
from pgo_agent.agent.profile.summary import Summary
from pgo_agent.agent.run.record.database import Database
from pgo_agent.sandbox.bundle.store import ContentStore, canonical
from pgo_agent.sandbox.errors import EnvironmentFault
from pgo_agent.sandbox.json_codec import Malformed

SUFFIX = "profile"  # of a whole profile in the content store
NOT_KEPT = "its profile is not in the workspace, or another version of pgo-agent wrote it"


@dataclass(frozen=True)
class StoredProfile:
    """One case of a candidate, or of the kernel as shipped."""

    candidate: str  # or `shipped`
    case: str
    passes: Mapping[str, str]  # name -> why it is not there; empty: it is
    seconds: float
    summary: Summary | None  # None until it is made, and where no pass was
    author: str | None = None  # the model that wrote the summary; None: it is embedded
    profile: str | None = None  # hash of the whole profile; None: nothing could be taken, or the row is older

    @property
    def taken(self) -> tuple[str, ...]:
        """Return the names of the passes that were taken."""
        return tuple(name for name, why in self.passes.items() if not why)


def put(contents: ContentStore, profile: CaseProfile) -> str:
    """Store a whole profile and return its hash. Raises EnvironmentFault if the disk refuses."""
    return contents.put(canonical(profile.as_json()), SUFFIX)


def there(contents: ContentStore, stored: StoredProfile) -> bool:
    """Whether the whole profile is in the content store, undamaged."""
    return _data(contents, stored) is not None


def whole(contents: ContentStore, stored: StoredProfile) -> CaseProfile | None:
    """Return the whole profile; None if it is missing, damaged, or of another version."""
    with contextlib.suppress(ValueError):  # Malformed is one
        data = _data(contents, stored)
        return CaseProfile.from_json(json.loads(data)) if data is not None else None
    return None


def _data(contents: ContentStore, stored: StoredProfile) -> bytes | None:
    with contextlib.suppress(EnvironmentFault):
        return contents.get(stored.profile, SUFFIX) if stored.profile else None
    return None


def add(db: Database, run: str, stored: StoredProfile) -> None:
    """Record a profile, or why there is none. An existing row stays."""
    with db.transaction() as open_:
        names = 'run, candidate, "case", passes, seconds, profile'
        values = (run, stored.candidate, stored.case, json.dumps(dict(stored.passes)), stored.seconds, stored.profile)
        open_.execute(f"INSERT OR IGNORE INTO profiles ({names}) VALUES (?, ?, ?, ?, ?, ?)", values)


def update(db: Database, run: str, stored: StoredProfile) -> None:
    """Update a recorded profile: its summary, that it is lost, or that it was taken again."""
    summary = json.dumps(stored.summary.as_json()) if stored.summary else None
    changed = (json.dumps(dict(stored.passes)), summary, stored.author, stored.profile)
    with db.transaction() as open_:
        sql = "UPDATE profiles SET passes = ?, summary = ?, author = ?, profile = ?"
        where = ' WHERE run = ? AND candidate = ? AND "case" = ?'
        open_.execute(sql + where, (*changed, run, stored.candidate, stored.case))


def of(db: Database, run: str, candidate: str | None = None) -> list[StoredProfile]:
    """Return the profiles of a candidate, or of all, in the order in which they were recorded."""
    sql = "SELECT * FROM profiles WHERE run = ? AND (? IS NULL OR candidate = ?) ORDER BY rowid"
    return [_stored(r) for r in db.rows(sql, (run, candidate, candidate))]


def _stored(row: sqlite3.Row) -> StoredProfile:
    summary = None
    with contextlib.suppress(Malformed):  # of another version: it is made anew
        summary = Summary.from_json(json.loads(row["summary"])) if row["summary"] else None
    passes = json.loads(row["passes"])
    return StoredProfile(row["candidate"], row["case"], passes, row["seconds"], summary, row["author"], row["profile"])
