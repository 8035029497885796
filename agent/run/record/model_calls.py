"""Models in the record of a run: which model answered in which role, at what cost, and which roles fell back.

Relies on `store.py`, which stores the calls themselves.
"""

from dataclasses import dataclass, fields

from pgo_agent.agent.run.record.database import Database


@dataclass(frozen=True)
class Share:
    """What one model did in one role."""

    role: str
    model: str  # by its own word
    calls: int
    useless: int  # calls whose reply had something wrong with it
    prompt_tokens: int  # as far as they were reported
    completion_tokens: int
    counted: int  # tokens, as budgets count them
    seconds: float
    cost: float | None  # money; None where no price is known


@dataclass(frozen=True)
class Fallback:
    """A role whose embedded form did the work of its model."""

    role: str
    about: str  # what it did; empty: everything from there on
    why: str


def shares(db: Database, run: str) -> list[Share]:
    """Return the share of each model in each role, in the order of first calls."""
    rows = db.rows(
        "SELECT role, model, count(*) AS calls, sum(remark != '') AS useless,"
        " coalesce(sum(prompt_tokens), 0) AS prompt_tokens, coalesce(sum(completion_tokens), 0) AS completion_tokens,"
        " sum(counted) AS counted, sum(seconds) AS seconds, sum(cost) AS cost"
        " FROM calls WHERE run = ? GROUP BY role, model ORDER BY min(n)",
        (run,),
    )
    return [Share(**dict(r)) for r in rows]


def tokens_by_generation(db: Database, run: str) -> dict[int, int]:
    """Return generation -> tokens of its prompts and their replies, as budgets count them."""
    sql = (
        "SELECT (SELECT min(generation) FROM questions AS q WHERE q.run = c.run AND q.prompt = c.prompt) AS generation,"
        " sum(counted) AS tokens FROM calls AS c WHERE c.run = ? GROUP BY 1"
    )
    return {int(r["generation"]): int(r["tokens"]) for r in db.rows(sql, (run,)) if r["generation"] is not None}


def add_fallback(db: Database, run: str, fallback: Fallback) -> None:
    """Record that a role fell back, and why; replaces an earlier entry about the same."""
    with db.transaction() as open_:
        values = (run, fallback.role, fallback.about, fallback.why)
        open_.execute("INSERT OR REPLACE INTO fallbacks VALUES (?, ?, ?, ?)", values)


def fallbacks(db: Database, run: str) -> list[Fallback]:
    """Return the fallbacks of a run, in order."""
    names = ", ".join(f.name for f in fields(Fallback))
    return [Fallback(**dict(r)) for r in db.rows(f"SELECT {names} FROM fallbacks WHERE run = ? ORDER BY rowid", (run,))]
