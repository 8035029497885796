"""The schema of the results database, as functions that are applied in order and remembered by name."""

import sqlite3
from collections.abc import Callable

MIGRATIONS: list[Callable[[sqlite3.Connection], None]] = []


def migration(function: Callable[[sqlite3.Connection], None]) -> Callable[[sqlite3.Connection], None]:
    MIGRATIONS.append(function)
    return function


def migrate(db: sqlite3.Connection) -> None:
    """Brings a database up to date. Each step is one transaction: a killed process leaves a whole schema."""
    with db:
        db.execute("CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY)")
    done = {name for (name,) in db.execute("SELECT name FROM migrations")}
    for function in MIGRATIONS:
        if function.__name__ not in done:
            with db:
                db.execute("BEGIN IMMEDIATE")
                if not db.execute("SELECT 1 FROM migrations WHERE name = ?", (function.__name__,)).fetchone():
                    function(db)  # else another process was first
                    db.execute("INSERT INTO migrations VALUES (?)", (function.__name__,))


@migration
def m001_initial(db: sqlite3.Connection) -> None:
    db.execute("""
        CREATE TABLE runs (
            id TEXT PRIMARY KEY,
            target TEXT NOT NULL,           -- path of the kernel file
            digest TEXT NOT NULL,           -- of the target as it was when the run began
            source TEXT NOT NULL,           -- the kernel file's text
            device TEXT NOT NULL,           -- key of the device that is compiled for
            settings TEXT NOT NULL,         -- JSON: budget, seeds, where it is judged
            baseline TEXT,                  -- JSON: cases, shipped and tuned; NULL until it stands
            state TEXT NOT NULL,            -- running, done, none_found, budget, interrupted
            seconds REAL NOT NULL DEFAULT 0, -- wall clock spent, over all resumptions
            summary TEXT,                   -- JSON: the outcome
            created TEXT NOT NULL
        )""")
    db.execute("""
        CREATE TABLE generations (
            run TEXT NOT NULL REFERENCES runs, n INTEGER NOT NULL, incumbent TEXT NOT NULL,
            finished INTEGER NOT NULL DEFAULT 0,
            PRIMARY KEY (run, n)
        )""")
    db.execute("""
        CREATE TABLE candidates (
            run TEXT NOT NULL REFERENCES runs,
            id TEXT NOT NULL,               -- hash of the source
            generation INTEGER NOT NULL,
            position INTEGER NOT NULL,      -- order of proposal in the generation
            parent TEXT NOT NULL, kind TEXT NOT NULL, move TEXT NOT NULL, rationale TEXT NOT NULL,
            author TEXT NOT NULL,           -- embedded, or the name of a model
            source TEXT NOT NULL,
            built TEXT,                     -- JSON: bundle, choices, static profiles; NULL until built
            verdict TEXT, stage TEXT, reason TEXT,
            speedup REAL,                   -- of the incumbent then, as judged; NULL where nothing was measured
            seconds REAL,                   -- to judge
            PRIMARY KEY (run, id)
        )""")
    db.execute("""
        CREATE TABLE evidence (
            run TEXT NOT NULL, candidate TEXT NOT NULL, stage TEXT NOT NULL, body TEXT NOT NULL,
            PRIMARY KEY (run, candidate, stage)
        )""")
    db.execute("""
        CREATE TABLE samples (
            run TEXT NOT NULL, candidate TEXT NOT NULL, stage TEXT NOT NULL, gpu_case TEXT NOT NULL, side TEXT NOT NULL,
            ms TEXT NOT NULL,               -- JSON: milliseconds of each round, in order
            PRIMARY KEY (run, candidate, stage, gpu_case, side)
        )""")


@migration
def m002_skipped_moves(db: sqlite3.Connection) -> None:
    db.execute("""
        CREATE TABLE skipped (
            run TEXT NOT NULL, parent TEXT NOT NULL, move TEXT NOT NULL, reason TEXT NOT NULL,
            PRIMARY KEY (run, parent, move)
        )""")


@migration
def m003_model_calls(db: sqlite3.Connection) -> None:
    db.execute("""
        CREATE TABLE calls (
            run TEXT NOT NULL, n INTEGER NOT NULL, model TEXT NOT NULL,
            prompt_hash TEXT NOT NULL,      -- of the template
            prompt TEXT NOT NULL, reply TEXT NOT NULL,
            remark TEXT NOT NULL,           -- what was wrong with the reply; empty when nothing
            prompt_tokens INTEGER, completion_tokens INTEGER, seconds REAL NOT NULL,
            PRIMARY KEY (run, n)
        )""")


@migration
def m004_measured_against(db: sqlite3.Connection) -> None:
    db.execute("ALTER TABLE candidates ADD COLUMN against TEXT")  # what it was measured against: the incumbent then


@migration
def m005_profiles(db: sqlite3.Connection) -> None:
    db.execute("ALTER TABLE candidates ADD COLUMN cites TEXT")  # JSON: the bottleneck that its move answers
    db.execute("""
        CREATE TABLE profiles (
            run TEXT NOT NULL, candidate TEXT NOT NULL, "case" TEXT NOT NULL,
            passes TEXT NOT NULL,           -- JSON: name of each pass -> why it is not there; empty: it is
            seconds REAL NOT NULL,
            summary TEXT,                   -- JSON: the case in short; NULL until it is made, and where no pass was
            PRIMARY KEY (run, candidate, "case")
        )""")


@migration
def m006_roles_and_budgets(db: sqlite3.Connection) -> None:
    db.execute("ALTER TABLE calls ADD COLUMN role TEXT NOT NULL DEFAULT 'optimizer'")
    db.execute("ALTER TABLE calls ADD COLUMN attempts INTEGER NOT NULL DEFAULT 1")
    db.execute("ALTER TABLE calls ADD COLUMN counted INTEGER NOT NULL DEFAULT 0")  # tokens, as budgets count them
    db.execute("ALTER TABLE calls ADD COLUMN cost REAL")  # money; NULL where no price is known
    db.execute("UPDATE calls SET counted = coalesce(prompt_tokens, 0) + coalesce(completion_tokens, 0)")
    db.execute("ALTER TABLE runs ADD COLUMN gpu_seconds REAL NOT NULL DEFAULT 0")  # over all resumptions
    db.execute("ALTER TABLE profiles ADD COLUMN author TEXT")  # of the summary; NULL: embedded
    db.execute("""
        CREATE TABLE fallbacks (
            run TEXT NOT NULL, role TEXT NOT NULL,
            about TEXT NOT NULL,            -- what its embedded form did instead of a model; empty: all from there on
            why TEXT NOT NULL,
            PRIMARY KEY (run, role, about)
        )""")


@migration
def m007_proposers_and_lessons(db: sqlite3.Connection) -> None:
    db.execute("ALTER TABLE candidates ADD COLUMN proposer TEXT")  # model, moves, memory or given: see mixing.py
    db.execute("""
        UPDATE candidates SET proposer = CASE author
            WHEN 'embedded' THEN 'moves' WHEN 'given' THEN 'given' ELSE 'model' END""")
    db.execute("ALTER TABLE runs ADD COLUMN contract TEXT")  # digest of what a target asks; NULL: from before
    db.execute("ALTER TABLE runs ADD COLUMN knows INTEGER")  # the last verdict that was recorded when it began


@migration
def m008_answers_elsewhere(db: sqlite3.Connection) -> None:
    db.execute("""
        CREATE TABLE answers (
            run TEXT NOT NULL, request TEXT NOT NULL,  -- hash of what a judge elsewhere was asked
            seconds REAL NOT NULL,          -- that its GPU was held
            PRIMARY KEY (run, request)
        )""")


@migration
def m009_questions_and_mended(db: sqlite3.Connection) -> None:
    db.execute("""
        CREATE TABLE questions (
            run TEXT NOT NULL, generation INTEGER NOT NULL,
            about TEXT NOT NULL,            -- what is to be mended; empty: a fresh prompt
            prompt TEXT NOT NULL,
            PRIMARY KEY (run, generation, about)
        )""")
    db.execute("""
        CREATE TABLE mended (
            run TEXT NOT NULL, candidate TEXT NOT NULL,
            failed TEXT NOT NULL,           -- what it mends: a candidate, or what could not be read
            repairs INTEGER NOT NULL,       -- messages that led to it
            PRIMARY KEY (run, candidate)
        )""")


@migration
def m010_quarantined_gpus(db: sqlite3.Connection) -> None:
    db.execute("""
        CREATE TABLE quarantined (
            run TEXT NOT NULL, gpu TEXT NOT NULL,  -- UUID
            name TEXT NOT NULL,             -- its index then
            why TEXT NOT NULL,
            PRIMARY KEY (run, gpu)
        )""")


@migration
def m010_steering(db: sqlite3.Connection) -> None:
    db.execute("""
        CREATE TABLE steers (
            run TEXT NOT NULL REFERENCES runs, n INTEGER NOT NULL,
            kind TEXT NOT NULL,             -- guide, veto, submit, pin or budget
            body TEXT NOT NULL,             -- JSON: what it says, by its kind
            generation INTEGER,             -- the first that it holds for; NULL until the loop took it
            outcome TEXT,                   -- what came of it, in words; NULL until the loop took it
            PRIMARY KEY (run, n)
        )""")


@migration
def m011_measured(db: sqlite3.Connection) -> None:
    db.execute("""
        CREATE TABLE measured (
            run TEXT NOT NULL, candidate TEXT NOT NULL,
            judged TEXT NOT NULL,           -- JSON: what the first process said, with its samples
            speedup REAL NOT NULL, seconds REAL NOT NULL,
            PRIMARY KEY (run, candidate)
        )""")


@migration
def m012_whole_profiles(db: sqlite3.Connection) -> None:
    db.execute("ALTER TABLE profiles ADD COLUMN profile TEXT")  # hash of the whole profile; NULL: none is kept


@migration
def m013_typed_reasons(db: sqlite3.Connection) -> None:
    db.execute("ALTER TABLE candidates ADD COLUMN why TEXT")  # JSON: clauses of the reason; NULL: from before them
