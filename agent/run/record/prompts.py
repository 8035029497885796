"""Prompts in the record of a run before they are asked, and which candidates mend which.

A prompt tells of what was tried, and that grows while a generation is put together: a killed run must ask what it was
asking, not something like it. Relies on `database.py`; replies are in `store.py`.
"""

from pgo_agent.agent.run.record.database import Database


def prompt(db: Database, run: str, generation: int, about: str) -> str | None:
    """What was asked in a generation about one thing; None when nothing was."""
    sql = "SELECT prompt FROM questions WHERE run = ? AND generation = ? AND about = ?"
    return next((str(r["prompt"]) for r in db.rows(sql, (run, generation, about))), None)


def keep(db: Database, run: str, generation: int, about: str, prompt: str) -> None:
    with db.transaction() as opened:
        opened.execute("INSERT OR IGNORE INTO questions VALUES (?, ?, ?, ?)", (run, generation, about, prompt))


def last_fresh(db: Database, run: str, before: int) -> tuple[int, str] | None:
    """The newest generation before one that has a fresh prompt, and that prompt."""
    sql = "SELECT generation, prompt FROM questions WHERE run = ? AND about = '' AND generation < ? ORDER BY generation"
    rows = db.rows(sql, (run, before))
    return (int(rows[-1]["generation"]), str(rows[-1]["prompt"])) if rows else None


def same_before(db: Database, run: str, generation: int, about: str) -> int:
    """How many questions with the same prompt were asked before one: theirs are the first replies to it."""
    sql = (
        "SELECT count(*) AS n FROM questions AS q JOIN questions AS own ON q.run = own.run AND q.prompt = own.prompt"
        " WHERE own.run = ? AND own.generation = ? AND own.about = ? AND q.rowid < own.rowid"
    )
    return int(db.rows(sql, (run, generation, about))[0]["n"])


def asked(db: Database, run: str, generation: int) -> list[str]:
    """What was asked about in a generation, in order."""
    sql = "SELECT about FROM questions WHERE run = ? AND generation = ? ORDER BY rowid"
    return [str(r["about"]) for r in db.rows(sql, (run, generation))]


def repairs(db: Database, run: str, candidate: str) -> int:
    """How many messages led to a candidate that mends another; 0 for one that does not."""
    sql = "SELECT repairs FROM mended WHERE run = ? AND candidate = ?"
    return next((int(r["repairs"]) for r in db.rows(sql, (run, candidate))), 0)


def add_repair(db: Database, run: str, candidate: str, failed: str, repairs: int) -> None:
    """That a candidate mends something; what is known of it stays."""
    with db.transaction() as opened:
        opened.execute("INSERT OR IGNORE INTO mended VALUES (?, ?, ?, ?)", (run, candidate, failed, repairs))
