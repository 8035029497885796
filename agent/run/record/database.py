"""The database of a workspace: opens it, reads it, writes it in transactions, and locks it for one run at a time.

A file lock, which ends with its process, marks the active run. A command that holds it may share it with the processes
that it begins (`SHARED`). A power loss may take the last transactions, never a
part of one. It knows no table: `store.py` and `profiles.py` do.
"""

import contextlib
import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pgo_agent.agent.run.record import schema
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.errors import EnvironmentFault, UsageFault

BUSY_SECONDS = 30.0
SHARED = "PGO_AGENT_SHARED"  # in the environment of a process: a workspace that who began it holds for it, too


class Database:
    """Opens the workspace at `root`, or creates it if `create`.

    Raises EnvironmentFault if the disk refuses, UsageFault for a workspace of another schema.
    """

    def __init__(self, root: Path, create: bool = True) -> None:
        self.root, self.contents = root, ContentStore(root)
        self._one = threading.RLock()  # threads share the connection: sqlite3 mixes up rows of statements that overlap
        if root.exists() and not root.is_dir():
            raise UsageFault(f"the workspace {root} is no folder", "give --store a folder, or the name of a new one")
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
            _write_ahead(self.db)
            self.db.execute("PRAGMA synchronous=FULL")
            ours = schema.create(self.db)
        self._counted = self.db.total_changes  # rows that transactions changed, and the schema
        if not ours:
            self.db.close()
            raise UsageFault(
                f"the record in {root} was made by another version of pgo-agent, and this one cannot read it",
                "read it with the version that made it, or give another --store",
            )

    def close(self) -> None:
        with self._one:  # closing during a statement of another thread would crash the process
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

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[sqlite3.Row]:
        with self._one, self._disk():
            return self.db.execute(sql, values).fetchall()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        with self._one, self._disk():
            before = self.db.total_changes
            self.db.execute("BEGIN IMMEDIATE")
            try:
                yield self.db
                self.db.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self.db.execute("ROLLBACK")
                raise
            finally:
                self._counted += self.db.total_changes - before

    @property
    def unaccounted(self) -> int:
        """The number of rows that this process changed outside of transactions."""
        return self.db.total_changes - self._counted

    @contextlib.contextmanager
    def active(self, run: str, shared: bool = False) -> Iterator[None]:
        """Lock the workspace for a run, and clear what killed runs left in it.

        `shared`: processes that this one begins with `SHARED` in their environment make runs in it beside each other.
        Raises EnvironmentFault if another process holds it, or if the record is damaged.
        """
        lent = os.environ.get(SHARED) == str(self.root.resolve())
        with self._disk():
            lock = os.open(self.root / "active", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            with self._disk():
                if lent:
                    fcntl.flock(lock, fcntl.LOCK_SH)
                else:
                    self._take_over(lock, f"run {run}, process {os.getpid()}")
                if shared:
                    fcntl.flock(lock, fcntl.LOCK_SH)
            yield
        finally:
            os.close(lock)

    def _take_over(self, lock: int, whose: str) -> None:
        self._lock(lock, whose)
        self.contents.sweep()
        ((verdict,),) = self.rows("PRAGMA quick_check(1)")
        if verdict != "ok":
            raise self._damaged(verdict)

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


def _write_ahead(db: sqlite3.Connection) -> None:
    """Turn on write-ahead logging; retry while another process is busy, as SQLite does not wait for this."""
    until = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            db.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as e:
            if e.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.01)
