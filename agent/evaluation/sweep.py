"""Measures all configurations of the baselines on GPUs; one that ends the judge's process is found, and costs no other.

Relies on a judge's `sweep`. What is made of the answers is `baseline.py`'s.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from pgo_agent.agent.evaluation import safety_checks
from pgo_agent.agent.run.context import Context
from pgo_agent.sandbox.errors import TargetFault
from pgo_agent.sandbox.judge.interface import Ended, Judge, of_ended


def sweep(ctx: Context, gpu: Judge, entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the sweep says of them: all of a case on one GPU, and the cases side by side. Elsewhere it is one request:
    a refusal is then told once."""
    parts: dict[str, list[dict[str, Any]]] = {}
    for entry in entries:
        parts.setdefault("" if gpu.elsewhere else entry["case"], []).append(entry)
    found = gpu.together({name: partial(_sweep, ctx, gpu, own) for name, own in parts.items()})
    return [e for _, answer in found for e in answer]


def _sweep(ctx: Context, gpu: Judge, entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What becomes of each. One that ends the process is looked for, and the others are timed together without it."""
    try:
        answer = gpu.ask("sweep", entries=entries)["entries"]
    except Ended as e:
        ended = _ending(gpu, entries, e)
        alive = [e for e in entries if _key(e) not in ended]
        if len(alive) == len(entries):
            told = of_ended("sweep", e)
            raise TargetFault(
                f"{ctx.target.path}: the kernel as it stands {told.verdict} when it is measured: {told.reason}",
                "it does not when its configurations are tried in parts: look for one that writes where it must not",
            ) from None
        gone = [entry | {"bundle": entry["bundle"]["id"], "problem": ended[k], "ms": []}
                for entry in entries if (k := _key(entry)) in ended]  # fmt: skip
        return [e | {"taken_on": safety_checks.taken_on(gpu)} for e in gone] + (
            _sweep(ctx, gpu, alive) if alive else []
        )
    return [e | {"taken_on": safety_checks.taken_on(gpu)} for e in answer]


def _ending(gpu: Judge, entries: Sequence[dict[str, Any]], e: Ended) -> dict[tuple[str, str, str], str]:
    """Which of them end the process, and how: found by halves."""
    if len(entries) == 1:
        told = of_ended("sweep", e)
        return {_key(entries[0]): f"{told.verdict}: {told.reason}"}
    found: dict[tuple[str, str, str], str] = {}
    for part in (entries[: len(entries) // 2], entries[len(entries) // 2 :]):
        try:
            gpu.ask("sweep", entries=part)
        except Ended as again:
            found |= _ending(gpu, part, again)
    return found


def _key(entry: Mapping[str, Any]) -> tuple[str, str, str]:
    return entry["bundle"]["id"], entry["case"], entry["choice"]
