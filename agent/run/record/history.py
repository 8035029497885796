"""The earlier runs of a target: their candidates with verdicts, from the record of a workspace.

A run sees what was recorded when it began, and nothing later, so a resumed run decides the same whatever other runs did
in between. Vetoed candidates are left out: nobody judged them. Relies on `store.py`; `lessons.py` and `duplicates.py`
use it.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pgo_agent.agent.run.record.candidate import Candidate
from pgo_agent.agent.run.record.candidates import why_of
from pgo_agent.agent.run.record.run import Run
from pgo_agent.agent.run.record.store import Store
from pgo_agent.sandbox.gate.reason import NONE, Reason
from pgo_agent.sandbox.gate.verdict import Verdict

RUNS = 50  # earlier runs that are read, newest first
REFUSED = (Verdict.WRONG, Verdict.RACE)
_NO_GPU = ("interpreter", "known")  # stages that say nothing about code on a GPU, or only repeat a verdict


@dataclass(frozen=True)
class Tried:
    """A candidate of an earlier run, with its verdict."""

    run: str
    id: str
    parent: str
    kind: str
    move: str
    rationale: str
    author: str
    verdict: str
    stage: str
    why: Reason
    speedup: float | None  # of its incumbent then; None: not measured
    against: str | None
    proposer: str | None
    device: str  # key of what it was compiled for
    gpu: str  # name of what measured it; empty: nothing did
    triton: str  # version; empty: not known
    same_text: bool  # whether that run was of this very text of the kernel


@dataclass(frozen=True)
class Subject:
    """The target, and the run, whose earlier runs are read."""

    digest: str  # of kernel and contract
    asked: str | None  # digest of the contract alone
    run: str = ""  # the run that asks; empty: nobody does
    knows: int | None = None  # the last verdict that it may see; None: all


def of(run: Run) -> Subject:
    """Return what a run may know. With the setting `alone` it knows no other run."""
    return Subject(run.digest, run.contract, run.id, 0 if run.settings.alone else run.knows or 0)


def tried(store: Store, subject: Subject) -> Sequence[Tried]:
    """Return candidates with verdicts: the newest run first, and in a run the last proposals first."""
    return _read(store, subject) if subject.knows is None else _read_once(store, subject)


@lru_cache(maxsize=8)
def _read_once(store: Store, subject: Subject) -> Sequence[Tried]:
    """Cached: what a run may know never changes while it goes on."""
    return _read(store, subject)


def _read(store: Store, subject: Subject) -> Sequence[Tried]:
    runs = {r["id"]: r for r in _runs(store, subject)}
    columns = "run, id, parent, kind, move, rationale, author, verdict, stage, speedup, against, proposer"
    rows = [r for name in runs for r in _rows(store, subject, name, f"{columns}, reason, why")]
    return [
        Tried(**{c: r[c] for c in columns.split(", ")}, why=why_of(r) or NONE, **_where(runs[r["run"]], subject))
        for r in rows
    ]


def refused(store: Store, run: Run) -> Iterator[Candidate]:
    """Yield what a GPU found wrong or racy, of the same text for the same device, in the order of `tried`."""
    for t in tried(store, of(run)):
        if t.same_text and t.device == run.device and t.verdict in REFUSED and t.stage not in _NO_GPU:
            yield store.candidate(t.run, t.id)


def source(store: Store, t: Tried) -> str:
    """Return the text of an earlier candidate."""
    return store.candidate(t.run, t.id).source


def _runs(store: Store, subject: Subject) -> Sequence[Any]:
    columns = "id, digest, device, settings, json_extract(baseline, '$.environment.gpu') AS gpu"
    sql = (
        f"SELECT {columns} FROM runs WHERE (? = '' OR rowid < (SELECT rowid FROM runs WHERE id = ?))"
        f" AND (digest = ? OR contract = ?) ORDER BY rowid DESC LIMIT {RUNS}"
    )
    return store.rows(sql, (subject.run, subject.run, subject.digest, subject.asked))


def _rows(store: Store, subject: Subject, run: str, columns: str) -> Sequence[Any]:
    sql = (
        f"SELECT {columns}, (SELECT max(e.rowid) FROM evidence e WHERE e.run = c.run AND e.candidate = c.id) AS at"
        " FROM candidates c WHERE run = ? AND verdict IS NOT NULL AND verdict != 'vetoed'"
        " AND at IS NOT NULL AND (? IS NULL OR at <= ?) ORDER BY generation DESC, position DESC"
    )
    return store.rows(sql, (run, subject.knows, subject.knows))


def _where(run: Any, subject: Subject) -> dict[str, Any]:
    triton = json.loads(run["settings"]).get("triton", "")
    same_text = run["digest"] == subject.digest
    return {"device": run["device"], "gpu": run["gpu"] or "", "triton": triton, "same_text": same_text}
