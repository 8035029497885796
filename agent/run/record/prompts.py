"""Prompts in the record of a run, stored before they are asked, and which candidates repair which.

A prompt holds the attempts so far, which grow while a generation is proposed. A resumed run must ask the same prompt
again, not a similar one. Relies on `database.py`; replies are in `store.py`.
"""

from pgo_agent.agent.run.record.database import Database


def prompt(db: Database, run: str, generation: int, about: str) -> str | None:
    """Return the prompt of a generation about one thing; None if there was none."""
    sql = "SELECT prompt FROM questions WHERE run = ? AND generation = ? AND about = ?"
    return next((str(r["prompt"]) for r in db.rows(sql, (run, generation, about))), None)


def keep(db: Database, run: str, generation: int, about: str, prompt: str) -> None:
    with db.transaction() as opened:
        opened.execute("INSERT OR IGNORE INTO questions VALUES (?, ?, ?, ?)", (run, generation, about, prompt))


def last_fresh(db: Database, run: str, before: int) -> tuple[int, str] | None:
    """Return the last generation before `before` with a fresh prompt, and that prompt; None if there is none."""
    sql = "SELECT generation, prompt FROM questions WHERE run = ? AND about = '' AND generation < ? ORDER BY generation"
    rows = db.rows(sql, (run, before))
    return (int(rows[-1]["generation"]), str(rows[-1]["prompt"])) if rows else None


def same_before(db: Database, run: str, generation: int, about: str) -> int:
    """Return how many questions with the same prompt came before this one: the first replies to it are theirs."""
    sql = (
        "SELECT count(*) AS n FROM questions AS q JOIN questions AS own ON q.run = own.run AND q.prompt = own.prompt"
        " WHERE own.run = ? AND own.generation = ? AND own.about = ? AND q.rowid < own.rowid"
    )
    return int(db.rows(sql, (run, generation, about))[0]["n"])


def asked(db: Database, run: str, generation: int) -> list[str]:
    """Return what the prompts of a generation were about, in order."""
    sql = "SELECT about FROM questions WHERE run = ? AND generation = ? ORDER BY rowid"
    return [str(r["about"]) for r in db.rows(sql, (run, generation))]


def repairs(db: Database, run: str, candidate: str) -> int:
    """Return how many messages led to a candidate that repairs another; 0 for any other candidate."""
    sql = "SELECT repairs FROM mended WHERE run = ? AND candidate = ?"
    return next((int(r["repairs"]) for r in db.rows(sql, (run, candidate))), 0)


def add_repair(db: Database, run: str, candidate: str, failed: str, repairs: int) -> None:
    """Record that a candidate repairs something; an existing row stays."""
    with db.transaction() as opened:
        opened.execute("INSERT OR IGNORE INTO mended VALUES (?, ?, ?, ?)", (run, candidate, failed, repairs))
