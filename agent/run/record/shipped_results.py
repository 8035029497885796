"""Results that ship with the project: evals/results/*.jsonl, one line for each (code, plan, device) that was measured.

A build made here is recognized by its plan id, which names what the GPU executes. What is read is shown as a recording,
with the GPU and versions it came from; it is never mixed up with a measurement of this machine.
"""

import json
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

EVALUATIONS = ("plan", "run", "mutant")  # what their files begin with


@dataclass(frozen=True)
class Recorded:
    ms: float  # median of the raw samples
    samples: tuple[float, ...]
    finalist: bool  # timed side by side with the other finalists of its case
    environment: dict[str, Any]
    commit: str


def find(plan_id: str, device: str) -> Recorded | None:
    """What was measured of this very code and plan on a GPU of that name, in the sweep over the launch grid."""
    return _plans().get((plan_id, device))


def judged(candidate: str, device: str) -> tuple[str, float | None] | None:
    """(verdict, speedup of the incumbent then) of a candidate with this very source on a GPU of that name."""
    return _verdicts().get((candidate, device))


@cache
def _plans() -> dict[tuple[str, str], Recorded]:
    return {
        (r["plan_id"], r["environment"]["gpu"]): Recorded(
            statistics.median(r["ms"]), tuple(r["ms"]), r["finalist"], r["environment"], r["commit"]
        )
        for r in rows()
        if r["what"] == "sweep"
    }


@cache
def _verdicts() -> dict[tuple[str, str], tuple[str, float | None]]:
    found = (r for r in rows() if r["what"] == "verdict")
    return {(r["candidate"], r["environment"]["gpu"]): (r["verdict"], r["speedup"]) for r in found}


def rows() -> Iterable[dict[str, Any]]:
    """Every line of recorded runs, file by file in order of name; not those of evaluations."""
    folder = resources.files("pgo_agent.evals").joinpath("results")
    if not folder.is_dir():
        return
    for file in sorted(folder.iterdir(), key=lambda f: f.name):
        if file.name.endswith(".jsonl"):
            lines = [json.loads(line) for line in file.read_text().splitlines()]
            yield from lines if lines and lines[0]["what"] not in EVALUATIONS else ()
