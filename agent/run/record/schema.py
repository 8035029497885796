"""The schema of the results database: one script, and a version number that identifies it.

The number is a checksum of the script, so a change cannot be forgotten. There is no migration: a workspace is read by
the pgo-agent that made it. Relies on sqlite3 alone.
"""

import re
import sqlite3
import zlib

SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
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
    created TEXT NOT NULL,
    gpu_seconds REAL NOT NULL DEFAULT 0, -- over all resumptions
    contract TEXT,                  -- digest of what a target asks of a kernel
    knows INTEGER                   -- the last verdict that was recorded when it began
);
CREATE TABLE IF NOT EXISTS generations (
    run TEXT NOT NULL REFERENCES runs, n INTEGER NOT NULL, incumbent TEXT NOT NULL,
    finished INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (run, n)
);
CREATE TABLE IF NOT EXISTS candidates (
    run TEXT NOT NULL REFERENCES runs,
    id TEXT NOT NULL,               -- hash of the source
    generation INTEGER NOT NULL,
    position INTEGER NOT NULL,      -- order of proposal in the generation
    parent TEXT NOT NULL, kind TEXT NOT NULL, move TEXT NOT NULL, rationale TEXT NOT NULL,
    author TEXT NOT NULL,           -- embedded, or the name of a model
    source TEXT NOT NULL,
    built TEXT,                     -- JSON: bundle, choices, static profiles; NULL until built
    verdict TEXT, stage TEXT,
    reason TEXT,                    -- the text for a person
    why TEXT,                       -- JSON: the clauses that it is made of, and what of them a model may know
    speedup REAL,                   -- of the incumbent then, as judged; NULL where nothing was measured
    seconds REAL,                   -- to judge
    against TEXT,                   -- what it was measured against: the incumbent then
    cites TEXT,                     -- JSON: the bottleneck that its move answers
    proposer TEXT,                  -- model, moves, memory or given
    PRIMARY KEY (run, id)
);
CREATE TABLE IF NOT EXISTS evidence (
    run TEXT NOT NULL, candidate TEXT NOT NULL, stage TEXT NOT NULL, body TEXT NOT NULL,
    PRIMARY KEY (run, candidate, stage)
);
CREATE TABLE IF NOT EXISTS samples (
    run TEXT NOT NULL, candidate TEXT NOT NULL, stage TEXT NOT NULL, gpu_case TEXT NOT NULL, side TEXT NOT NULL,
    ms TEXT NOT NULL,               -- JSON: milliseconds of each round, in order
    PRIMARY KEY (run, candidate, stage, gpu_case, side)
);
CREATE TABLE IF NOT EXISTS measured (
    run TEXT NOT NULL, candidate TEXT NOT NULL,
    judged TEXT NOT NULL,           -- JSON: what the first process said, with its samples
    speedup REAL NOT NULL, seconds REAL NOT NULL,
    PRIMARY KEY (run, candidate)
);
CREATE TABLE IF NOT EXISTS skipped (
    run TEXT NOT NULL, parent TEXT NOT NULL, move TEXT NOT NULL, reason TEXT NOT NULL,
    PRIMARY KEY (run, parent, move)
);
CREATE TABLE IF NOT EXISTS mended (
    run TEXT NOT NULL, candidate TEXT NOT NULL,
    failed TEXT NOT NULL,           -- what it repairs: a candidate, or an unreadable part of a reply
    repairs INTEGER NOT NULL,       -- messages that led to it
    PRIMARY KEY (run, candidate)
);
CREATE TABLE IF NOT EXISTS profiles (
    run TEXT NOT NULL, candidate TEXT NOT NULL, "case" TEXT NOT NULL,
    passes TEXT NOT NULL,           -- JSON: name of each pass -> why it is not there; empty: it is
    seconds REAL NOT NULL,
    summary TEXT,                   -- JSON: the case in short; NULL until it is made, and where no pass was
    author TEXT,                    -- of the summary; NULL: embedded
    profile TEXT,                   -- hash of the whole profile in the content store; NULL: nothing could be taken
    PRIMARY KEY (run, candidate, "case")
);
CREATE TABLE IF NOT EXISTS questions (
    run TEXT NOT NULL, generation INTEGER NOT NULL,
    about TEXT NOT NULL,            -- what is to be repaired; empty: a fresh prompt
    prompt TEXT NOT NULL,
    PRIMARY KEY (run, generation, about)
);
CREATE TABLE IF NOT EXISTS calls (
    run TEXT NOT NULL, n INTEGER NOT NULL, model TEXT NOT NULL,
    prompt_hash TEXT NOT NULL,      -- of the template
    prompt TEXT NOT NULL, reply TEXT NOT NULL,
    remark TEXT NOT NULL,           -- what was wrong with the reply; empty when nothing
    prompt_tokens INTEGER, completion_tokens INTEGER, seconds REAL NOT NULL,
    role TEXT NOT NULL DEFAULT 'optimizer',
    attempts INTEGER NOT NULL DEFAULT 1,
    counted INTEGER NOT NULL DEFAULT 0, -- tokens, as budgets count them
    cost REAL,                      -- money; NULL where no price is known
    PRIMARY KEY (run, n)
);
CREATE TABLE IF NOT EXISTS fallbacks (
    run TEXT NOT NULL, role TEXT NOT NULL,
    about TEXT NOT NULL,            -- what its embedded form did instead of a model; empty: all from there on
    why TEXT NOT NULL,
    PRIMARY KEY (run, role, about)
);
CREATE TABLE IF NOT EXISTS answers (
    run TEXT NOT NULL, request TEXT NOT NULL, -- hash of what a judge elsewhere was asked
    seconds REAL NOT NULL,          -- that its GPU was held
    PRIMARY KEY (run, request)
);
CREATE TABLE IF NOT EXISTS quarantined (
    run TEXT NOT NULL, gpu TEXT NOT NULL, -- UUID
    name TEXT NOT NULL,             -- its index then
    why TEXT NOT NULL,
    PRIMARY KEY (run, gpu)
);
CREATE TABLE IF NOT EXISTS steers (
    run TEXT NOT NULL REFERENCES runs, n INTEGER NOT NULL,
    kind TEXT NOT NULL,             -- guide, veto, submit, pin, budget or close
    body TEXT NOT NULL,             -- JSON: what it says, by its kind
    generation INTEGER,             -- the first that it holds for; NULL until the loop took it
    outcome TEXT,                   -- what came of it, in words; NULL until the loop took it
    PRIMARY KEY (run, n)
);
"""
VERSION = zlib.crc32(re.sub(r"--.*|\s", "", SCHEMA).encode()) >> 1  # of the statements; SQLite keeps 31 bits of it


def create(db: sqlite3.Connection) -> bool:
    """Create the tables in one transaction if there are none; return whether the database has this schema.

    A killed process leaves all of them or none, and several processes may call it at once.
    """
    empty = not db.execute("SELECT 1 FROM sqlite_master").fetchone()
    if empty:
        db.executescript(f"BEGIN IMMEDIATE; {SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")
    return bool(db.execute("PRAGMA user_version").fetchone()[0] == VERSION)
