"""The candidates of a run, as its record holds them.

A night leaves thousands, with builds of some 40 kB each, and a generation asks for all of them again and again. So what
was read of the last run stays in memory, but for the builds, and what changed since is read again: by this process, of
which it keeps account, or by another one, which SQLite tells.
"""

import json
import sqlite3
from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from pgo_agent.agent.profile.summary import Bottleneck
from pgo_agent.agent.run.record.candidate import Candidate, NewCandidate
from pgo_agent.agent.run.record.database import Database
from pgo_agent.sandbox import json_codec
from pgo_agent.sandbox.build.result import Built
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.gate import reason as reasons
from pgo_agent.sandbox.gate.reason import Reason
from pgo_agent.sandbox.gate.verdict import Judgement

Times = dict[str, dict[str, tuple[float, ...]]]  # case -> side -> ms
_COLUMNS = (
    "run, id, generation, position, parent, kind, move, rationale, author, source, verdict, stage, reason, why,"
    " speedup, seconds, against, cites, proposer, json_extract(built, '$.bundle') AS bundle"
)
_IN_ORDER = "ORDER BY generation, position"


class Candidates(Database):
    """The candidates of a workspace's runs."""

    def __init__(self, root: Path, create: bool = True) -> None:
        super().__init__(root, create)
        self._known: dict[str, Candidate] = {}  # of one run
        self._stale: set[str] = set()  # ids among them, or new ones
        self._state: tuple[str, int, int] | None = None  # that run, and what others wrote since

    def candidates(self, run: str, generation: int | None = None) -> list[Candidate]:
        with self._one:
            return [c for c in self._of(run).values() if generation in (None, c.generation)]

    def candidate(self, run: str, prefix: str) -> Candidate:
        """Return the candidate whose id begins with `prefix`. Raises UsageFault if none or several do."""
        with self._one:
            known = self._of(run)
            matches = [known[prefix]] if prefix in known else [c for i, c in known.items() if i.startswith(prefix)]
        if len(matches) != 1:
            raise UsageFault(
                f"{len(matches)} candidates of run {run} begin with '{prefix}'", f"`pgo-agent show {run}` lists them"
            )
        return matches[0]

    def _of(self, run: str) -> dict[str, Candidate]:
        """Return the candidates of a run by id, in order."""
        ((others,),) = self.rows("PRAGMA data_version")
        state = run, int(others), self.unaccounted
        if state != self._state:
            self._known, self._state = {}, state
            rows = self.rows(f"SELECT {_COLUMNS} FROM candidates WHERE run = ? {_IN_ORDER}", (run,))
        elif self._stale:
            marks = ", ".join("?" * len(self._stale))
            sql = f"SELECT {_COLUMNS} FROM candidates WHERE run = ? AND id IN ({marks}) {_IN_ORDER}"
            rows = self.rows(sql, (run, *self._stale))
        else:
            return self._known
        self._known |= {r["id"]: self._candidate(r) for r in rows}
        self._stale.clear()
        return self._known

    def _candidate(self, row: sqlite3.Row) -> Candidate:
        cites = None if row["cites"] is None else Bottleneck.from_json(json.loads(row["cites"]))
        read = partial(self._build_of, row["run"], row["id"])
        columns = dict(row) | {"cites": cites, "why": why_of(row), "read_build": read}
        return Candidate(**{k: v for k, v in columns.items() if k != "reason"})

    def _build_of(self, run: str, candidate: str) -> Built | None:
        rows = self.rows("SELECT built FROM candidates WHERE run = ? AND id = ?", (run, candidate))
        return _built(rows[0]["built"]) if rows and rows[0]["built"] is not None else None

    # what is written --------------------------------------------------------------------------------------------------

    def add_generation(self, run: str, n: int, incumbent: str, proposals: Sequence[NewCandidate]) -> None:
        """Record a generation with its candidates; an existing one stays as it is."""
        with self.transaction() as db:
            self._stale.update(p.id for p in proposals)
            fresh = db.execute(
                "INSERT OR IGNORE INTO generations (run, n, incumbent) VALUES (?, ?, ?)", (run, n, incumbent)
            ).rowcount
            for position, p in enumerate(proposals if fresh else []):
                columns = (p.kind, p.move, p.rationale, p.author, p.source, p.proposer)
                cites = json.dumps(p.cites.as_json()) if p.cites else None
                db.execute(
                    "INSERT OR IGNORE INTO candidates (run, id, generation, position, parent, kind, move, rationale,"
                    " author, source, proposer, cites) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (run, p.id, n, position, p.parent, *columns, cites),
                )

    def set_built(self, run: str, candidate: str, built: Built) -> None:
        with self.transaction() as db:
            self._stale.add(candidate)
            values = (json.dumps(built.as_json()), run, candidate)
            db.execute("UPDATE candidates SET built = ? WHERE run = ? AND id = ?", values)

    def set_verdict(self, run: str, candidate: str, judged: Judgement, speedup: float | None, seconds: float) -> None:
        """Record a verdict with its evidence and raw samples. A candidate that has one keeps it."""
        body = dict(judged.evidence)
        against = body.pop("incumbent", None)
        timed = {stage: json_codec.from_json(Times, body.pop(stage, {})) for stage in ("quick", "time")}
        with self.transaction() as db:
            self._stale.add(candidate)
            why = json.dumps(judged.why.as_json())
            values = (str(judged.verdict), judged.stage, judged.reason, why, speedup, seconds, against, run, candidate)
            fresh = db.execute(
                "UPDATE candidates SET verdict = ?, stage = ?, reason = ?, why = ?, speedup = ?, seconds = ?,"
                " against = ? WHERE run = ? AND id = ? AND verdict IS NULL",
                values,
            ).rowcount
            if fresh:
                db.execute("DELETE FROM measured WHERE run = ? AND candidate = ?", (run, candidate))
                db.execute(
                    "INSERT OR REPLACE INTO evidence VALUES (?, ?, ?, ?)",
                    (run, candidate, judged.stage, json.dumps(body)),
                )
                for stage, cases in timed.items():
                    _insert_samples(db, (run, candidate, stage), cases)


@lru_cache(maxsize=64)  # builds of a few generations: each has some 40 kB of text, and more when it is read
def _built(text: str) -> Built:
    return Built.from_json(json.loads(text))


def why_of(row: sqlite3.Row) -> Reason | None:
    """Return a candidate's reason: typed, or the prose of an older record; None before its verdict."""
    return None if row["reason"] is None else reasons.from_json(row["reason"], _json(row["why"]))


def _insert_samples(db: sqlite3.Connection, key: tuple[str, str, str], cases: Times) -> None:
    for case, sides in cases.items():
        for side, ms in sides.items():
            db.execute("INSERT OR REPLACE INTO samples VALUES (?, ?, ?, ?, ?, ?)", (*key, case, side, json.dumps(ms)))


def _json(text: str | None) -> Any:
    return None if text is None else json.loads(text)
