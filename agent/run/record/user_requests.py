"""What a person asked of a run, in its record: written by whoever sits at a terminal, taken by the loop.

Two processes share it, so nothing is lost when either of them is killed. Relies on `database.py`; what a request
means, and when it is taken, says `steering.py`.
"""

import json
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pgo_agent.agent.run.record.database import Database


class Kind(StrEnum):
    GUIDE = "guide"  # words for the optimizer: text
    VETO = "veto"  # a candidate is not to be judged: candidate, why
    SUBMIT = "submit"  # a candidate of the person's own: source, kind, parent
    PIN = "pin"  # what to start from: candidate; empty: as the search would have it
    BUDGET = "budget"  # another limit: name, value


AT_ONCE = (Kind.VETO, Kind.BUDGET)  # the others are taken with the next generation


@dataclass(frozen=True)
class Steer:
    """One request."""

    n: int
    kind: Kind
    body: dict[str, Any]
    generation: int | None  # the first that it holds for; None: not taken yet
    outcome: str | None  # in words; None: not taken yet

    @property
    def asked(self) -> str:
        """What was asked, in words, but for the text of a candidate."""
        return f"{self.kind}: {_WORDS[self.kind](self.body)}"


_WORDS: Mapping[Kind, Callable[[Mapping[str, Any]], str]] = {
    Kind.GUIDE: lambda b: str(b["text"]),
    Kind.VETO: lambda b: ", ".join(filter(None, (b["candidate"][:8], b.get("why")))),
    Kind.SUBMIT: lambda b: f"{'TTGIR' if b['kind'] == 'ttgir' else b['kind']} edited from {b['of'][:8]}",
    Kind.PIN: lambda b: b["candidate"][:8] or "off",
    Kind.BUDGET: lambda b: f"{b['name']}, {figure(b['value'])}",
}


def figure(value: float) -> str:
    """A budget as a person types one."""
    return f"{value:.12g}"


def add(db: Database, run: str, kind: Kind, body: Mapping[str, Any]) -> int:
    """A request, to be taken when the loop comes to it; gives its number."""
    with db.transaction() as opened:
        (n,) = opened.execute("SELECT coalesce(max(n), 0) + 1 FROM steers WHERE run = ?", (run,)).fetchone()
        opened.execute("INSERT INTO steers VALUES (?, ?, ?, ?, NULL, NULL)", (run, n, kind, json.dumps(dict(body))))
    return int(n)


def take(db: Database, run: str, n: int, generation: int, outcome: str) -> bool:
    """Notes what came of a request, once; whether this was the time."""
    with db.transaction() as opened:
        sql = "UPDATE steers SET generation = ?, outcome = ? WHERE run = ? AND n = ? AND outcome IS NULL"
        return bool(opened.execute(sql, (generation, outcome, run, n)).rowcount)


def give_back(db: Database, run: str, n: int) -> None:
    """A request that was taken for what did not come about: nobody took it."""
    with db.transaction() as opened:
        opened.execute("UPDATE steers SET generation = NULL, outcome = NULL WHERE run = ? AND n = ?", (run, n))


def of(db: Database, run: str, *kinds: Kind) -> list[Steer]:
    """The requests of a run, in the order in which they were made; of these kinds, if any are given."""
    rows = db.rows("SELECT * FROM steers WHERE run = ? ORDER BY n", (run,))
    return [s for s in map(_steer, rows) if not kinds or s.kind in kinds]


def waiting(db: Database, run: str, *kinds: Kind) -> list[Steer]:
    """Those that the loop did not take yet."""
    return [s for s in of(db, run, *kinds) if s.outcome is None]


def _steer(row: sqlite3.Row) -> Steer:
    return Steer(row["n"], Kind(row["kind"]), json.loads(row["body"]), row["generation"], row["outcome"])
