"""Rows of `evals/record.py`'s lines: runs that were recorded on a GPU before there was a nightly.

Those lines name no seed or budget; a row says so, by `None`, and is told apart by that. Its optimizer is who answered,
or what stands for the moves alone. Older lines name no winner: theirs is the last candidate that was accepted. Its diff
needs the kernel file as it was: the one that ships, while its digest is the record's; else there is none.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pgo_agent.agent.run import target_file
from pgo_agent.evals.nightly import row
from pgo_agent.evals.nightly.from_run import diff
from pgo_agent.evals.nightly.row import SHIPPED, WINNER, Case, Row, Tried, Winner
from pgo_agent.sandbox import target
from pgo_agent.sandbox.gate.verdict import Verdict

KINDS = ("sweep", "final", "verdict")
OPTIMIZER = "recorded"  # of runs by the moves alone
PLAN = ("choice", "plan_id", "codes")


def rows(lines: Iterable[Mapping[str, Any]], file: str) -> list[Row]:
    """A row of each run. Raises KeyError, TypeError, ValueError for lines that are no record."""
    runs: dict[str, list[Mapping[str, Any]]] = {}
    for line in lines:
        runs.setdefault(line["run"], []).append(line)
    found = [_row(of_one, file) for of_one in runs.values()]
    for r in found:
        parts: tuple[Row | Tried | Winner, ...] = (r, *r.candidates, *([r.winner] if r.winner else []))
        for part in parts:
            row.typed(part)
    return found


def _row(lines: Sequence[Mapping[str, Any]], file: str) -> Row:
    first, final = lines[0], [line for line in lines if line["what"] == "final"]
    verdicts = [line for line in lines if line["what"] == "verdict"]
    cases = {str(line["case"]): None for line in final}
    won = WINNER in {line["side"] for line in final}
    return Row(
        kernel=first["target"],
        target=first["target"],
        optimizer=", ".join((OPTIMIZER, *first.get("models", []))),
        seed=None,
        run=first["run"],
        when=first["when"],
        commit=first["commit"],
        digest=first["digest"],
        environment=dict(first["environment"]),
        budget=None,
        state="done" if won else "none_found",
        failed="" if final else "the record holds no last session",
        truncated=False,
        cases={c: _case([line for line in final if line["case"] == c]) for c in cases},
        candidates=tuple(_tried(verdicts)),
        winner=_winner(verdicts, first["target"], first["digest"]) if won else None,
        seconds=None,
        gpu_seconds=None,
        tokens=None,
        money=None,
        file=file,
    )


def _case(sides: Sequence[Mapping[str, Any]]) -> Case:
    ms = {str(s["side"]): [float(x) for x in s["ms"]] for s in sides}
    plans = {s["side"]: {k: s[k] for k in PLAN} for s in sides if s["plan_id"]}
    return Case(int(sides[0]["flops"]), int(sides[0]["bytes"]), 1.0, ms, plans)


def _tried(verdicts: Iterable[Mapping[str, Any]]) -> Iterable[Tried]:
    for v, incumbent in _measured(verdicts):
        told = (v["verdict"], v["stage"], v["reason"], v["speedup"], incumbent, v["seconds"] or 0.0)
        yield Tried(v["candidate"], v["move"], v["kind"], v.get("author", ""), *told)


def _measured(verdicts: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Each with what it was measured against. In older lines that is what had been accepted before."""
    incumbent = SHIPPED
    for v in verdicts:
        yield v, v.get("against") or incumbent
        incumbent = v["candidate"] if v["verdict"] == Verdict.ACCEPTED else incumbent


def descent(verdicts: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The accepted candidates that led to a run's winner, each measured against the one before; it comes last."""
    accepted = {v["candidate"]: (v, before) for v, before in _measured(verdicts) if v["verdict"] == Verdict.ACCEPTED}
    name = (verdicts[0].get("winner") if verdicts else None) or next(reversed(accepted), None)
    found = []
    while name in accepted:
        v, name = accepted[name]
        found.append(v)
    return found[::-1]


def _winner(verdicts: Sequence[Mapping[str, Any]], kernel: str, digest: str) -> Winner:
    accepted = descent(verdicts)
    if not accepted:
        raise ValueError("times of a winner, and no candidate that was accepted")
    last, before = accepted[-1], _shipped(kernel, digest)
    changed = diff(before, last["source"]) if before and last["source"] else ""
    told = (last["kind"], last.get("author", ""), last["reason"], changed, ())
    return Winner(last["candidate"], tuple(v["move"] for v in accepted), *told)


@cache
def _shipped(kernel: str, digest: str) -> str:
    """The text of the kernel that ships under that name, while it is the one of the digest; else empty."""
    file = target_file.locate(Path(kernel))
    if not file.is_file():
        return ""
    found = target.read(file)
    return found.source if found.digest == digest else ""
