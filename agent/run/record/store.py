"""The record of runs: SQLite beside content-addressed files, in a workspace folder (`.pgo-agent/` by default).

Each method is one transaction. A verdict is written once, with its evidence and raw samples, or not at all. Runs are in
the order in which they were added: the wall clock may jump. Relies on `database.py` and
`candidates.py`; profiles are in `profiles.py`.
"""

import json
import sqlite3
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pgo_agent.agent.llm.models.types import OPTIMIZER, Reply
from pgo_agent.agent.run.facts import RunFacts
from pgo_agent.agent.run.record.baseline import Baseline
from pgo_agent.agent.run.record.candidates import Candidates
from pgo_agent.agent.run.record.run import Run
from pgo_agent.agent.run.record.run_summary import RunSummary
from pgo_agent.agent.run.record.settings_json import decode, encode
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.judge.gpus import Gpu


@dataclass(frozen=True)
class Call:
    """One call of a model."""

    model: str
    prompt: str
    reply: str
    prompt_tokens: int | None
    completion_tokens: int | None
    seconds: float
    role: str = OPTIMIZER
    cost: float | None = None  # money; None where no price is known


class Store(Candidates):
    """The runs of a workspace with their generations, candidates, verdicts, calls and budgets."""

    # runs -------------------------------------------------------------------------------------------------------------

    def add_run(
        self,
        run: str,
        target: Path,
        digest: str,
        source: str,
        device: str,
        settings: RunSettings,
        facts: RunFacts,
        contract: str | None = None,
    ) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        row = (run, str(target), digest, source, device, json.dumps(encode(settings, facts)), now, contract)
        with self.transaction() as db:
            db.execute(
                "INSERT INTO runs (id, target, digest, source, device, settings, state, created, contract, knows)"
                " VALUES (?, ?, ?, ?, ?, ?, 'running', ?, ?, (SELECT coalesce(max(rowid), 0) FROM evidence))",
                row,
            )

    def run(self, prefix: str) -> Run:
        """Return the run whose id begins with `prefix` ('last': added last). Raises UsageFault if none or several
        do."""
        if prefix == "last":
            rows = self.rows("SELECT * FROM runs ORDER BY rowid DESC LIMIT 1")
        else:
            rows = self.rows("SELECT * FROM runs WHERE substr(id, 1, ?) = ?", (len(prefix), prefix))
        if len(rows) != 1:
            problem = "several runs begin" if rows else "no run begins"
            raise UsageFault(f"{problem} with '{prefix}'", "`pgo-agent runs` lists them")
        return _run(rows[0])

    def runs(self) -> list[Run]:
        """Return all runs, oldest first."""
        return [_run(r) for r in self.rows("SELECT * FROM runs ORDER BY rowid")]

    def set_baseline(self, run: str, baseline: Baseline) -> None:
        with self.transaction() as db:
            db.execute("UPDATE runs SET baseline = ? WHERE id = ?", (json.dumps(baseline.as_json()), run))

    def set_settings(self, run: str, settings: RunSettings, facts: RunFacts) -> None:
        with self.transaction() as db:
            db.execute("UPDATE runs SET settings = ? WHERE id = ?", (json.dumps(encode(settings, facts)), run))

    def set_state(self, run: str, state: str, summary: RunSummary | None = None) -> None:
        with self.transaction() as db:
            db.execute("UPDATE runs SET state = ? WHERE id = ?", (state, run))
            if summary is not None:
                db.execute("UPDATE runs SET summary = ? WHERE id = ?", (json.dumps(summary.as_json()), run))

    def add_seconds(self, run: str, seconds: float, gpu_seconds: float = 0.0) -> None:
        with self.transaction() as db:
            sql = "UPDATE runs SET seconds = seconds + ?, gpu_seconds = gpu_seconds + ? WHERE id = ?"
            db.execute(sql, (seconds, gpu_seconds, run))

    # generations ---------------------------------------------------------------------------------------

    def add_skipped(self, run: str, parent: str, move: str, reason: str) -> None:
        """Record a move that did not apply to a candidate, and why."""
        with self.transaction() as db:
            db.execute("INSERT OR REPLACE INTO skipped VALUES (?, ?, ?, ?)", (run, parent, move, reason))

    def skipped(self, run: str) -> list[tuple[str, str, str]]:
        """Return (parent, move, reason) of every move that did not apply."""
        rows = self.rows("SELECT parent, move, reason FROM skipped WHERE run = ? ORDER BY rowid", (run,))
        return [(r["parent"], r["move"], r["reason"]) for r in rows]

    def add_call(
        self, run: str, reply: Reply, prompt_hash: str, prompt: str, remark: str, role: str = OPTIMIZER
    ) -> None:
        """Record one call of a model: prompt and reply whole, and what they cost."""
        cost = (reply.prompt_tokens, reply.completion_tokens, reply.seconds, role, reply.attempts, reply.counted)
        with self.transaction() as db:
            (n,) = db.execute("SELECT count(*) FROM calls WHERE run = ?", (run,)).fetchone()
            values = (run, n + 1, reply.model, prompt_hash, prompt, reply.text, remark, *cost, reply.cost)
            db.execute("INSERT INTO calls VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)

    def calls(self, run: str, role: str | None = None, prompt: str | None = None) -> list[Call]:
        """Return the calls of the run's models in order; of one role, with one prompt, if these are given."""
        columns = ", ".join(f.name for f in fields(Call))
        sql = f"SELECT {columns} FROM calls WHERE run = ? AND ? IN (role, '') AND (? IS NULL OR prompt = ?) ORDER BY n"
        return [Call(**dict(r)) for r in self.rows(sql, (run, role or "", prompt, prompt))]

    def answered(self, run: str) -> tuple[str, ...]:
        """Return the names that the run's models gave, each once, in the order of their first answers."""
        rows = self.rows("SELECT model FROM calls WHERE run = ? GROUP BY model ORDER BY min(n)", (run,))
        return tuple(r["model"] for r in rows)

    def remarks(self, run: str) -> list[str]:
        """Return what was wrong with the optimizer's replies so far, in order."""
        sql = "SELECT remark FROM calls WHERE run = ? AND role = ? AND remark != '' ORDER BY n"
        return [r["remark"] for r in self.rows(sql, (run, OPTIMIZER))]

    def spent(self, run: str) -> dict[str, float]:
        """Return the `tokens`, as budgets count them, and the `money` that the run's models spent."""
        sql = "SELECT coalesce(sum(counted), 0) AS tokens, coalesce(sum(cost), 0.0) AS money FROM calls WHERE run = ?"
        (row,) = self.rows(sql, (run,))
        return dict(row)

    def add_answer(self, run: str, request: str, seconds: float) -> bool:
        """Record the answer of a judge elsewhere, once; return whether it is new."""
        with self.transaction() as db:
            sql = "INSERT OR IGNORE INTO answers VALUES (?, ?, ?)"
            return bool(db.execute(sql, (run, request, seconds)).rowcount)

    def add_quarantined(self, run: str, gpu: Gpu, why: str) -> None:
        """Record a GPU that the run no longer uses."""
        with self.transaction() as db:
            db.execute("INSERT OR REPLACE INTO quarantined VALUES (?, ?, ?, ?)", (run, gpu.uuid, gpu.index, why))

    def quarantined(self, run: str) -> dict[str, tuple[str, str]]:
        """Return UUID of each such GPU -> its index then, and why."""
        rows = self.rows("SELECT gpu, name, why FROM quarantined WHERE run = ? ORDER BY rowid", (run,))
        return {r["gpu"]: (r["name"], r["why"]) for r in rows}

    def finish_generation(self, run: str, n: int) -> None:
        with self.transaction() as db:
            db.execute("UPDATE generations SET finished = 1 WHERE run = ? AND n = ?", (run, n))

    def generations(self, run: str) -> dict[int, bool]:
        """Return number -> whether it is finished, of each generation, in order."""
        rows = self.rows("SELECT n, finished FROM generations WHERE run = ? ORDER BY n", (run,))
        return {r["n"]: bool(r["finished"]) for r in rows}

    def began_with(self, run: str, generation: int) -> str:
        """Return the incumbent when a generation was proposed: `shipped` or a candidate."""
        (row,) = self.rows("SELECT incumbent FROM generations WHERE run = ? AND n = ?", (run, generation))
        return str(row["incumbent"])

    def evidence(self, run: str, candidate: str) -> dict[str, JsonObject]:
        """Return everything recorded of a candidate: stage -> evidence, and `samples`, its raw times in ms."""
        by_stage: dict[str, JsonObject] = {
            r["stage"]: json.loads(r["body"])
            for r in self.rows("SELECT stage, body FROM evidence WHERE run = ? AND candidate = ?", (run, candidate))
        }
        samples: dict[str, dict[str, JsonObject]] = {}
        for r in self.rows("SELECT * FROM samples WHERE run = ? AND candidate = ?", (run, candidate)):
            samples.setdefault(r["stage"], {}).setdefault(r["gpu_case"], {})[r["side"]] = json.loads(r["ms"])
        return by_stage | ({"samples": dict(samples)} if samples else {})


def _run(row: sqlite3.Row) -> Run:
    stored = decode(row["settings"], row["device"])
    columns = dict(row) | {f.name: getattr(stored, f.name) for f in fields(stored)}
    return Run(baseline_json=columns.pop("baseline"), summary_json=columns.pop("summary"), **columns)


def _json(text: str | None) -> Any:
    return None if text is None else json.loads(text)
