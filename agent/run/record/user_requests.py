"""Requests of a person or an agent in the record of a run: written by a session or a server, taken by the loop.

Two processes share them, so nothing is lost if either is killed. Relies on `database.py`; `steering.py` defines what a
request means and when it is taken.
"""

import json
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypedDict

from pgo_agent.agent.run.record.database import Database


class Kind(StrEnum):
    GUIDE = "guide"  # words for the optimizer: text
    VETO = "veto"  # a candidate is not to be judged: candidate, why
    SUBMIT = "submit"  # a candidate of the person's own: source, kind, parent; its note and author, if they are told
    PIN = "pin"  # what to start from: candidate; empty: as the search would have it
    BUDGET = "budget"  # another limit: name, value
    CLOSE = "close"  # nothing more will be submitted: an open run ends


AT_ONCE = (Kind.VETO, Kind.BUDGET)  # the others are taken with the next generation


class Body(TypedDict, total=False):
    """What is asked, by its kind."""

    text: str
    candidate: str
    why: str
    source: str
    kind: str
    parent: str
    of: str
    note: str
    move: str  # what was sent: a whole kernel, an edit of something
    author: str
    name: str
    value: float


@dataclass(frozen=True)
class Steer:
    """One request."""

    n: int
    kind: Kind
    body: Body
    generation: int | None  # the first that it holds for; None: not taken yet
    outcome: str | None  # in words; None: not taken yet

    @property
    def asked(self) -> str:
        """Return the request as text, without the source of a candidate."""
        return f"{self.kind}: {_WORDS[self.kind](self.body)}"


def _submitted(body: Body) -> str:
    if "author" not in body:
        return f"{'TTGIR' if body['kind'] == 'ttgir' else body['kind']} edited from {body['of'][:8]}"
    note = f": {body['note']}" if body.get("note") else ""
    return f"{body.get('move', body['kind'])}, from {body['author']}{note}"


_WORDS: Mapping[Kind, Callable[[Body], str]] = {
    Kind.GUIDE: lambda b: str(b["text"]),
    Kind.VETO: lambda b: ", ".join(filter(None, (b["candidate"][:8], b.get("why")))),
    Kind.SUBMIT: _submitted,
    Kind.PIN: lambda b: b["candidate"][:8] or "off",
    Kind.BUDGET: lambda b: f"{b['name']}, {figure(b['value'])}",
    Kind.CLOSE: lambda b: "nothing more",
}


def figure(value: float) -> str:
    """Return a budget as a person types it."""
    return f"{value:.12g}"


def add(db: Database, run: str, kind: Kind, body: Body) -> int:
    """Record a request for the loop to take; return its number."""
    with db.transaction() as opened:
        (n,) = opened.execute("SELECT coalesce(max(n), 0) + 1 FROM steers WHERE run = ?", (run,)).fetchone()
        opened.execute("INSERT INTO steers VALUES (?, ?, ?, ?, NULL, NULL)", (run, n, kind, json.dumps(dict(body))))
    return int(n)


def take(db: Database, run: str, n: int, generation: int, outcome: str) -> bool:
    """Record the outcome of a request, once; return whether this call did."""
    with db.transaction() as opened:
        sql = "UPDATE steers SET generation = ?, outcome = ? WHERE run = ? AND n = ? AND outcome IS NULL"
        return bool(opened.execute(sql, (generation, outcome, run, n)).rowcount)


def give_back(db: Database, run: str, n: int) -> None:
    """Make a request open again whose generation did not come about."""
    with db.transaction() as opened:
        opened.execute("UPDATE steers SET generation = NULL, outcome = NULL WHERE run = ? AND n = ?", (run, n))


def of(db: Database, run: str, *kinds: Kind) -> list[Steer]:
    """Return the requests of a run in order; of these kinds, if any are given."""
    rows = db.rows("SELECT * FROM steers WHERE run = ? ORDER BY n", (run,))
    return [s for s in map(_steer, rows) if not kinds or s.kind in kinds]


def waiting(db: Database, run: str, *kinds: Kind) -> list[Steer]:
    """Return the requests that the loop has not taken yet."""
    return [s for s in of(db, run, *kinds) if s.outcome is None]


def _steer(row: sqlite3.Row) -> Steer:
    return Steer(row["n"], Kind(row["kind"]), json.loads(row["body"]), row["generation"], row["outcome"])
