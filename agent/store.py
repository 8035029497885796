"""The record of runs: SQLite beside content-addressed files, in a workspace folder (`.pgo-agent/` by default).

Each method is one transaction. A verdict is written once, with its evidence and raw samples, or not at all. One run at
a time may be active in a workspace; a lock that the kernel drops with its process says so. Runs are in the order in
which they were added: the wall clock may jump. A power loss may take the last transactions, never a part of one.
"""

import contextlib
import fcntl
import json
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pgo_agent.agent.migrations import migrate
from pgo_agent.agent.models.base import Reply
from pgo_agent.sandbox.bundle.shelf import Shelf
from pgo_agent.sandbox.errors import EnvironmentFault, UsageFault
from pgo_agent.sandbox.gate.verdict import Judged

BUSY_SECONDS = 30.0


@dataclass(frozen=True)
class Run:
    id: str
    target: str
    digest: str
    source: str
    device: str
    settings: dict[str, Any]
    baseline: dict[str, Any] | None
    state: str
    seconds: float
    summary: dict[str, Any] | None
    created: str


@dataclass(frozen=True)
class Candidate:
    run: str
    id: str
    generation: int
    position: int
    parent: str
    kind: str
    move: str
    rationale: str
    author: str
    source: str
    built: dict[str, Any] | None
    verdict: str | None
    stage: str | None
    reason: str | None
    speedup: float | None
    seconds: float | None
    against: str | None  # what it was measured against, the incumbent then: a candidate or `shipped`


@dataclass(frozen=True)
class Call:
    """One call of a model."""

    model: str
    prompt: str
    reply: str
    prompt_tokens: int | None
    completion_tokens: int | None
    seconds: float


class Store:
    """Opens (and makes, if `create`) the workspace at `root`. Raises EnvironmentFault when the disk refuses."""

    def __init__(self, root: Path, create: bool = True) -> None:
        self.root, self.shelf = root, Shelf(root)
        self._one = threading.RLock()  # threads share the connection: sqlite3 mixes up rows of statements that overlap
        if not create and not (root / "pgo.db").is_file():
            raise UsageFault(
                f"there are no runs in {root}", "start one with `pgo-agent optimize FILE`, or give --store"
            )
        with self._disk():
            root.mkdir(parents=True, exist_ok=True)
            self.db = sqlite3.connect(
                root / "pgo.db", timeout=BUSY_SECONDS, check_same_thread=False, isolation_level=None
            )
            self.db.row_factory = sqlite3.Row
            self.db.execute("PRAGMA journal_mode=WAL")
            self.db.execute("PRAGMA synchronous=FULL")
            migrate(self.db)

    def close(self) -> None:
        self.db.close()

    @contextlib.contextmanager
    def _disk(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.DatabaseError) as e:
            if getattr(e, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                raise self._damaged(str(e)) from None
            hint = "free some space or make the folder writable; what was recorded is safe: `pgo-agent resume` goes on"
            raise EnvironmentFault(f"cannot write the record in {self.root}: {e}", hint) from None

    def _damaged(self, how: str) -> EnvironmentFault:
        hint = "put back a copy of it, or start again with another --store"
        return EnvironmentFault(f"the record {self.root / 'pgo.db'} is damaged: {how}", hint)

    def _rows(self, sql: str, values: Sequence[Any] = ()) -> list[sqlite3.Row]:
        with self._one, self._disk():
            return self.db.execute(sql, values).fetchall()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._one, self._disk():
            self.db.execute("BEGIN IMMEDIATE")
            try:
                yield self.db
                self.db.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self.db.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def active(self, run: str) -> Iterator[None]:
        """Holds the workspace for a run, and clears what killed ones left in it.

        Raises EnvironmentFault when another process holds it, and when the record is damaged.
        """
        with self._disk():
            lock = os.open(self.root / "active", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            with self._disk():
                self._lock(lock, f"run {run}, process {os.getpid()}")
                self.shelf.sweep()
            (found,) = self._rows("PRAGMA quick_check(1)")
            if found[0] != "ok":
                raise self._damaged(found[0])
            yield
        finally:
            os.close(lock)

    def _lock(self, lock: int, whose: str) -> None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            who = os.pread(lock, 200, 0).decode() or "another process"
            raise EnvironmentFault(
                f"a run is active in {self.root}: {who}", "wait for it, or give another --store"
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, whose.encode(), 0)

    # runs -------------------------------------------------------------------------------------------------------------

    def add_run(
        self, run: str, target: Path, digest: str, source: str, device: str, settings: Mapping[str, Any]
    ) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        row = (run, str(target), digest, source, device, json.dumps(dict(settings)), now)
        with self._transaction() as db:
            db.execute(
                "INSERT INTO runs (id, target, digest, source, device, settings, state, created)"
                " VALUES (?, ?, ?, ?, ?, ?, 'running', ?)",
                row,
            )

    def run(self, prefix: str) -> Run:
        """The run whose id begins with `prefix` ('last': added last). Raises UsageFault when none or several do."""
        if prefix == "last":
            rows = self._rows("SELECT * FROM runs ORDER BY rowid DESC LIMIT 1")
        else:
            rows = self._rows("SELECT * FROM runs WHERE substr(id, 1, ?) = ?", (len(prefix), prefix))
        if len(rows) != 1:
            problem = "several runs begin" if rows else "no run begins"
            raise UsageFault(f"{problem} with '{prefix}'", "`pgo-agent runs` lists them")
        return _run(rows[0])

    def runs(self) -> list[Run]:
        """All runs, oldest first."""
        return [_run(r) for r in self._rows("SELECT * FROM runs ORDER BY rowid")]

    def set_baseline(self, run: str, baseline: Mapping[str, Any]) -> None:
        with self._transaction() as db:
            db.execute("UPDATE runs SET baseline = ? WHERE id = ?", (json.dumps(baseline), run))

    def set_state(self, run: str, state: str, summary: Mapping[str, Any] | None = None) -> None:
        with self._transaction() as db:
            db.execute("UPDATE runs SET state = ? WHERE id = ?", (state, run))
            if summary is not None:
                db.execute("UPDATE runs SET summary = ? WHERE id = ?", (json.dumps(summary), run))

    def add_seconds(self, run: str, seconds: float) -> None:
        with self._transaction() as db:
            db.execute("UPDATE runs SET seconds = seconds + ? WHERE id = ?", (seconds, run))

    # generations and candidates ---------------------------------------------------------------------------------------

    def add_generation(self, run: str, n: int, incumbent: str, proposals: list[dict[str, Any]]) -> None:
        """A generation with its candidates; nothing happens when it is there already."""
        with self._transaction() as db:
            fresh = db.execute(
                "INSERT OR IGNORE INTO generations (run, n, incumbent) VALUES (?, ?, ?)", (run, n, incumbent)
            ).rowcount
            for position, p in enumerate(proposals if fresh else []):
                told = (p["kind"], p["move"], p["rationale"], p["author"], p["source"])
                values = (run, p["id"], n, position, p["parent"], *told)
                db.execute(
                    "INSERT OR IGNORE INTO candidates (run, id, generation, position, parent, kind, move, rationale,"
                    " author, source) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    values,
                )

    def add_skipped(self, run: str, parent: str, move: str, reason: str) -> None:
        """A move that did not apply to a candidate, and why."""
        with self._transaction() as db:
            db.execute("INSERT OR REPLACE INTO skipped VALUES (?, ?, ?, ?)", (run, parent, move, reason))

    def skipped(self, run: str) -> list[tuple[str, str, str]]:
        """(parent, move, reason) of every move that did not apply."""
        rows = self._rows("SELECT parent, move, reason FROM skipped WHERE run = ? ORDER BY rowid", (run,))
        return [(r["parent"], r["move"], r["reason"]) for r in rows]

    def add_call(self, run: str, reply: Reply, prompt_hash: str, prompt: str, remark: str) -> None:
        """One call of a model: prompt and reply whole, and what they cost."""
        tokens = (reply.prompt_tokens, reply.completion_tokens, reply.seconds)
        with self._transaction() as db:
            (n,) = db.execute("SELECT count(*) FROM calls WHERE run = ?", (run,)).fetchone()
            values = (run, n + 1, reply.model, prompt_hash, prompt, reply.text, remark, *tokens)
            db.execute("INSERT INTO calls VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)

    def calls(self, run: str) -> list[Call]:
        """What the run's models were asked and answered, in order."""
        names = ", ".join(f.name for f in fields(Call))
        return [Call(**dict(r)) for r in self._rows(f"SELECT {names} FROM calls WHERE run = ? ORDER BY n", (run,))]

    def remarks(self, run: str) -> list[str]:
        """What was wrong with the model's replies so far."""
        rows = self._rows("SELECT remark FROM calls WHERE run = ? AND remark != '' ORDER BY n", (run,))
        return [r["remark"] for r in rows]

    def spent(self, run: str) -> dict[str, float]:
        """Calls, tokens and seconds of the run's models."""
        (row,) = self._rows(
            "SELECT count(*) AS calls, coalesce(sum(prompt_tokens), 0) AS prompt_tokens,"
            " coalesce(sum(completion_tokens), 0) AS completion_tokens, coalesce(sum(seconds), 0) AS seconds"
            " FROM calls WHERE run = ?",
            (run,),
        )
        return dict(row)

    def finish_generation(self, run: str, n: int) -> None:
        with self._transaction() as db:
            db.execute("UPDATE generations SET finished = 1 WHERE run = ? AND n = ?", (run, n))

    def generations(self, run: str) -> dict[int, bool]:
        """Number of each generation, in order, and whether it is finished."""
        rows = self._rows("SELECT n, finished FROM generations WHERE run = ? ORDER BY n", (run,))
        return {r["n"]: bool(r["finished"]) for r in rows}

    def candidates(self, run: str, generation: int | None = None) -> list[Candidate]:
        rows = self._rows(
            "SELECT * FROM candidates WHERE run = ? AND (? IS NULL OR generation = ?) ORDER BY generation, position",
            (run, generation, generation),
        )
        return [_candidate(r) for r in rows]

    def candidate(self, run: str, prefix: str) -> Candidate:
        """Raises UsageFault when no candidate of the run begins with `prefix`, or several do."""
        sql = "SELECT * FROM candidates WHERE run = ? AND substr(id, 1, ?) = ? ORDER BY generation, position"
        found = [_candidate(r) for r in self._rows(sql, (run, len(prefix), prefix))]
        if len(found) != 1:
            raise UsageFault(
                f"{len(found)} candidates of run {run} begin with '{prefix}'", f"`pgo-agent show {run}` lists them"
            )
        return found[0]

    def set_built(self, run: str, candidate: str, built: Mapping[str, Any]) -> None:
        with self._transaction() as db:
            db.execute("UPDATE candidates SET built = ? WHERE run = ? AND id = ?", (json.dumps(built), run, candidate))

    def set_verdict(self, run: str, candidate: str, judged: Judged, speedup: float | None, seconds: float) -> None:
        """A verdict with its evidence and raw samples. A candidate that has one keeps it."""
        body = dict(judged.evidence)
        against = body.pop("incumbent", None)
        timed = {stage: body.pop(stage, {}) for stage in ("quick", "time")}
        with self._transaction() as db:
            values = (str(judged.verdict), judged.stage, judged.reason, speedup, seconds, against, run, candidate)
            fresh = db.execute(
                "UPDATE candidates SET verdict = ?, stage = ?, reason = ?, speedup = ?, seconds = ?, against = ?"
                " WHERE run = ? AND id = ? AND verdict IS NULL",
                values,
            ).rowcount
            if fresh:
                db.execute(
                    "INSERT OR REPLACE INTO evidence VALUES (?, ?, ?, ?)",
                    (run, candidate, judged.stage, json.dumps(body)),
                )
                for stage, cases in timed.items():
                    _insert_samples(db, (run, candidate, stage), cases)

    def evidence(self, run: str, candidate: str) -> dict[str, Any]:
        """Everything recorded of a candidate: stage -> evidence, and its raw samples."""
        found = {
            r["stage"]: json.loads(r["body"])
            for r in self._rows("SELECT stage, body FROM evidence WHERE run = ? AND candidate = ?", (run, candidate))
        }
        samples: dict[str, Any] = {}
        for r in self._rows("SELECT * FROM samples WHERE run = ? AND candidate = ?", (run, candidate)):
            samples.setdefault(r["stage"], {}).setdefault(r["gpu_case"], {})[r["side"]] = json.loads(r["ms"])
        return found | ({"samples": samples} if samples else {})


def _candidate(row: sqlite3.Row) -> Candidate:
    return Candidate(**(dict(row) | {"built": _json(row["built"])}))


def _insert_samples(db: sqlite3.Connection, key: tuple[str, str, str], cases: Mapping[str, Mapping[str, Any]]) -> None:
    for case, sides in cases.items():
        for side, ms in sides.items():
            db.execute("INSERT OR REPLACE INTO samples VALUES (?, ?, ?, ?, ?, ?)", (*key, case, side, json.dumps(ms)))


def _run(row: sqlite3.Row) -> Run:
    return Run(**(dict(row) | {k: _json(row[k]) for k in ("settings", "baseline", "summary")}))


def _json(text: str | None) -> Any:
    return None if text is None else json.loads(text)
