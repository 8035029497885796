"""Rows of made-up numbers, for tests of what is said of rows; and the real ones that ship."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pgo_agent.agent.commands.schemas import VERSION
from pgo_agent.evals.nightly.row import Case, Row, Tried, Winner
from pgo_agent.evals.runner.folders import RESULTS
from pgo_agent.sandbox.judge.machine import Environment

from tests.conftest import ROOT

RECORDED = sorted(RESULTS.glob("*.jsonl"))
FA_FWD = RESULTS / "fa_fwd-claude-h200.jsonl"
ROUNDS = 30
H200 = Environment("NVIDIA H200", driver="1", torch="2", triton="3", tflops=800.0, gbps=4000.0)
WON = Winner("w1", ("a move",), "source", "embedded", "1.1x", "--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\n", ())


def lot(ms: float, turn: int = 0) -> tuple[float, ...]:
    """Samples about `ms`, all different, another lot for each turn."""
    return tuple(ms * (1 + 0.0001 * ((7 * i + 3 * turn) % ROUNDS) + 0.000001 * (turn + 1)) for i in range(ROUNDS))


def case(ratio: float = 1.1, codes: str = "one", base: str = "base", turn: int = 0, slow: float = 1.0) -> Case:
    """`ratio`: how much faster the winner is; 0: there is none. `slow`: how much slower the whole machine is."""
    times = {"shipped": 2.0, "tuned": 2.0, "A/A": 2.0} | ({"winner": 2.0 / ratio} if ratio else {})
    ms = {side: lot(slow * t, turn + n) for n, (side, t) in enumerate(times.items())}
    names = dict.fromkeys(("shipped", "tuned", "A/A"), base) | ({"winner": codes} if ratio else {})
    plans = {side: {"choice": "BLOCK=1", "plan_id": name, "codes": [name]} for side, name in names.items()}
    return Case(10**9, 10**6, 1.0, ms, plans)


def row(cases: Mapping[str, Case] | None = None, **changes: Any) -> Row:
    """Of `add`, by the moves, with seed 1."""
    own = cases if cases is not None else {"CASES/1m": case()}
    won = any("winner" in c.ms for c in own.values())
    tried = (Tried("w1", "a move", "source", "embedded", "accepted", "confirm", "1.1x", 1.1, "shipped", 3.0),)
    made = Row(
        kernel="add", target="add.py", optimizer="embedded", seed=1, run="add-1", when="2026-11-20T01:00:00+00:00",
        commit="c" * 40, digest="d", environment=H200, budget={"candidates": 4}, state="done", failed="",
        truncated=False, cases=own, candidates=tried if won else (), winner=WON if won else None, seconds=9.0,
        gpu_seconds=4.0, tokens=0, money=0.0,
    )  # fmt: skip
    return replace(made, **changes)


def failed(**changes: Any) -> Row:
    return row({}, **{"failed": "the kernel does not compile", "state": "failed"} | changes)


def night(file: Path, rows: Sequence[Row], tail: str = "", plan: object = None) -> Path:
    """A nightly's file with these rows; `tail`: what stands behind its last whole line."""
    lines = [{"what": "plan", "digest": "p", "commit": "c" * 40, "plan": plan}, *(r.as_json() for r in rows)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines) + tail)
    return file


def kept_schema(name: str) -> Any:
    """Return a schema of `docs/schemas/`."""
    return json.loads((ROOT / "docs" / "schemas" / f"{name}.v{VERSION}.json").read_text())
