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


@dataclass(frozen=True)
class Recorded:
    ms: float  # median of the raw samples
    samples: tuple[float, ...]
    flops: int  # of the case
    environment: dict[str, Any]
    commit: str

    @property
    def tflops(self) -> float:
        return self.flops / self.ms / 1e9


def find(plan_id: str, device: str) -> Recorded | None:
    """What was measured of this very code and plan on a GPU of that name."""
    return _index().get((plan_id, device))


@cache
def _index() -> dict[tuple[str, str], Recorded]:
    found = {}
    for row in rows():
        if row.get("plan_id"):
            key = row["plan_id"], row["environment"]["gpu"]
            samples = tuple(row["ms"])
            found[key] = Recorded(statistics.median(samples), samples, row["flops"], row["environment"], row["commit"])
    return found


def rows() -> Iterable[dict[str, Any]]:
    """Every recorded line, file by file in order of name."""
    folder = resources.files("pgo_agent.evals").joinpath("results")
    if not folder.is_dir():
        return
    for file in sorted(folder.iterdir(), key=lambda f: f.name):
        if file.name.endswith(".jsonl"):
            for line in file.read_text().splitlines():
                yield json.loads(line)
