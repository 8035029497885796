"""Measures all configurations of the baselines on GPUs. One that ends the judge's process is found and left out.

Relies on the judge's `sweep`; `baseline.py` uses the answers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from pgo_agent.agent.evaluation import safety_checks
from pgo_agent.agent.run.context import Context
from pgo_agent.sandbox.errors import TargetFault
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.judge.interface import Ended, Judge, of_ended
from pgo_agent.sandbox.judge.questions import Sweep, SweepEntry, SweptEntry
from pgo_agent.sandbox.judge.references import bundle_ref


@dataclass(frozen=True)
class Entry:
    """One configuration of one case, to be measured."""

    bundle: str  # id
    case: str
    choice: str
    own: bool  # whether it is of the file's own list


@dataclass(frozen=True)
class Swept:
    """The result of one entry."""

    ms: tuple[float, ...]  # samples; none where it could not be timed
    problem: str  # why it is not right; empty: nothing was found wrong
    check: JsonObject | None  # how its results compare with the reference, as the judge reports
    finalist: bool  # timed side by side with the best of its case
    taken_on: dict[str, str]  # UUID and index of the GPU


def sweep(ctx: Context, gpu: Judge, entries: Sequence[Entry]) -> dict[Entry, Swept]:
    """Measure the entries: all of a case on one GPU, cases side by side. For a judge elsewhere it is one request, so
    that a refusal is reported once."""
    parts: dict[str, list[Entry]] = {}
    for entry in entries:
        parts.setdefault("" if gpu.elsewhere else entry.case, []).append(entry)
    answers = gpu.together({name: partial(_sweep, ctx, gpu, part) for name, part in parts.items()})
    return {entry: swept for _, answer in answers for entry, swept in answer.items()}


def _sweep(ctx: Context, gpu: Judge, entries: Sequence[Entry]) -> dict[Entry, Swept]:
    """The result of each. If one ends the process, it is searched for, and the others are timed without it."""
    try:
        answer = _asked(ctx, gpu, entries)
    except Ended as e:
        ended = _ending(ctx, gpu, entries, e)
        alive = [entry for entry in entries if entry not in ended]
        if len(alive) == len(entries):
            judged = of_ended("sweep", e)
            raise TargetFault(
                f"{ctx.target.path}: the kernel as it stands {judged.verdict} when it is measured: {judged.reason}",
                "it does not when its configurations are tried in parts: look for one that writes where it must not",
            ) from None
        on = safety_checks.taken_on(gpu)
        gone = {entry: Swept((), problem, None, False, on) for entry, problem in ended.items()}
        return gone | (_sweep(ctx, gpu, alive) if alive else {})
    on, by_key = safety_checks.taken_on(gpu), {(e.bundle, e.case, e.choice): e for e in answer}
    return {entry: _read(by_key[entry.bundle, entry.case, entry.choice], on) for entry in entries}


def _read(e: SweptEntry, on: dict[str, str]) -> Swept:
    return Swept(e.ms, e.problem, e.check, e.finalist, on)


def _asked(ctx: Context, gpu: Judge, entries: Sequence[Entry]) -> Sequence[SweptEntry]:
    contents = ctx.store.contents
    asked = (SweepEntry(bundle_ref(contents, e.bundle), e.case, e.choice, e.own) for e in entries)
    return gpu.ask(Sweep(tuple(asked))).entries


def _ending(ctx: Context, gpu: Judge, entries: Sequence[Entry], e: Ended) -> dict[Entry, str]:
    """Which of them end the process, and how, by bisection."""
    if len(entries) == 1:
        judged = of_ended("sweep", e)
        return {entries[0]: f"{judged.verdict}: {judged.reason}"}
    ending: dict[Entry, str] = {}
    for part in (entries[: len(entries) // 2], entries[len(entries) // 2 :]):
        try:
            _asked(ctx, gpu, part)
        except Ended as again:
            ending |= _ending(ctx, gpu, part, again)
    return ending
