"""Results that ship with the project: evals/results/*.jsonl, one line for each measured (code, plan, device).

A build is recognized by its plan id, which identifies what the GPU executes. Results are shown as recordings, with
their GPU and versions; they are never mixed with measurements of this machine.
"""

import json
import re
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from typing import TypedDict

from pgo_agent.agent.run.record.candidate import candidate_id
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.judge.machine import Environment

_SMALL = re.compile(r"^SMALL = \{(?:[^\n]*\}\n|\n.*?^\}\n)", re.M | re.S)
EVALUATIONS = ("plan", "run", "mutant")  # what their files begin with


class RecordedLine(TypedDict, total=False):
    """A line of recorded runs by `evals/record.py`: of a configuration (`sweep`) or a candidate (`verdict`)."""

    what: str
    target: str
    run: str
    commit: str
    environment: JsonObject
    winner: str | None
    models: list[str]
    plan_id: str
    ms: list[float]
    finalist: bool
    candidate: str
    source: str
    move: str
    idea: str
    author: str
    verdict: str
    stage: str
    against: str | None
    on: str
    speedup: float | None
    ratios: dict[str, float]


@dataclass(frozen=True)
class Recorded:
    ms: float  # median of the raw samples
    samples: tuple[float, ...]
    finalist: bool  # timed side by side with the other finalists of its case
    environment: Environment
    commit: str


def find(plan_id: str, device: str) -> Recorded | None:
    """Return the sweep's measurement of this very code and plan on a GPU of that name; None if there is none."""
    return _plans().get((plan_id, device))


@lru_cache(maxsize=1024)  # a screen asks again for each candidate whenever it is drawn
def judged(source: str, device: str) -> tuple[str, float | None] | None:
    """Return (verdict, speedup over its incumbent) of a candidate with this source on a GPU of that name. Its small
    cases may be others: no GPU runs them."""
    by_id = _verdicts()
    texts = (source, *(_SMALL.sub(small.replace("\\", r"\\"), source) for small in _small_cases()))
    return next((v for t in texts if (v := by_id.get((candidate_id(t), device)))), None)


@cache
def _plans() -> dict[tuple[str, str], Recorded]:
    return {(r["plan_id"], str(r["environment"]["gpu"])): _recorded(r) for r in rows() if r["what"] == "sweep"}


def _recorded(r: RecordedLine) -> Recorded:
    on = Environment.from_json(r["environment"])
    return Recorded(statistics.median(r["ms"]), tuple(r["ms"]), r["finalist"], on, r["commit"])


@cache
def _verdicts() -> dict[tuple[str, str], tuple[str, float | None]]:
    return {(r["candidate"], str(r["environment"]["gpu"])): (r["verdict"], r["speedup"]) for r in _judgements()}


@cache
def _small_cases() -> tuple[str, ...]:
    """Return the small cases that recorded sources have, as texts."""
    sources = (r["source"] for r in _judgements() if r.get("source"))
    return tuple(dict.fromkeys(m[0] for s in sources if (m := _SMALL.search(s))))


@cache
def _judgements() -> list[RecordedLine]:
    return [r for r in rows() if r["what"] == "verdict"]


def rows() -> Iterable[RecordedLine]:
    """Yield every line of recorded runs, file by file in order of name; files of evaluations are left out."""
    folder = resources.files("pgo_agent.evals").joinpath("results")
    if not folder.is_dir():
        return
    for file in sorted(folder.iterdir(), key=lambda f: f.name):
        if file.name.endswith(".jsonl"):
            lines = [json.loads(line) for line in file.read_text().splitlines()]
            yield from lines if lines and lines[0]["what"] not in EVALUATIONS else ()
