"""What `pgo-agent eval gate` prints: rates per group, who refused what, seconds, and everything that was a surprise."""

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pgo_agent.agent.version import commit_of
from pgo_agent.agent.views import summary as display
from pgo_agent.evals.entries import GROUPS
from pgo_agent.evals.gate import Outcome
from rich.table import Table

STANDINGS = ("refused", "admitted", "undecided")
_PARTS = ("trace", "compile", "judge")


def code(outcomes: Iterable[Outcome]) -> int:
    """1 when a bad one was admitted or an honest one refused, else 0."""
    return int(any(failed(o) for o in outcomes))


def failed(o: Outcome) -> bool:
    return o.standing == ("refused" if o.entry.honest else "admitted")


def summary(outcomes: Sequence[Outcome], seconds: float) -> dict[str, Any]:
    """Everything that is counted, as plain values; times in seconds of wall clock."""
    bad = [o for o in outcomes if not o.entry.honest]
    honest = [o for o in outcomes if o.entry.honest]
    return {
        "groups": {g: _standings([o for o in outcomes if o.entry.group == g]) for g in GROUPS},
        "bad": _standings(bad),
        "honest": _standings(honest),
        "refused_by": dict(Counter(o.stage for o in bad if o.standing == "refused").most_common()),
        "seconds": {p: round(sum(o.seconds.get(p, 0.0) for o in outcomes), 1) for p in _PARTS},
        "stages": _stages(outcomes),
        "wall": round(seconds, 1),
        "per_minute": round(60 * len(outcomes) / seconds, 1),
        "surprises": {o.entry.name: o.surprise for o in outcomes if o.surprise},
    }


def _stages(outcomes: Sequence[Outcome]) -> dict[str, dict[str, float]]:
    """Of each stage: how many it looked at, and the median of its seconds."""
    found = by_stage(o.stages for o in outcomes)
    return {s: {"looked at": len(t), "median s": round(statistics.median(t), 3)} for s, t in found.items()}


def by_stage(asked: Iterable[Mapping[str, float]]) -> dict[str, list[float]]:
    """Stage -> its seconds, of all entries that it looked at."""
    found: dict[str, list[float]] = {}
    for stages in asked:
        for stage, seconds in stages.items():
            found.setdefault(stage, []).append(seconds)
    return found


def _standings(outcomes: Sequence[Outcome]) -> dict[str, int]:
    counted = Counter(o.standing for o in outcomes)
    return {"entries": len(outcomes), **{s: counted[s] for s in STANDINGS}}


def line(o: Outcome) -> None:
    """An outcome as a line of JSON."""
    print(json.dumps(told(o)), flush=True)


def told(o: Outcome) -> dict[str, Any]:
    """An outcome as plain values."""
    return {
        "entry": o.entry.name,
        "does": o.entry.does,
        "target": o.entry.target,
        "ideas": list(o.entry.ideas),
        "standing": o.standing,
        "verdict": str(o.verdict),
        "stage": o.stage,
        "reason": o.reason,
        "seconds": {p: round(s, 3) for p, s in o.seconds.items()},
        "stages": o.stages,
        "surprise": o.surprise,
        "environment": o.environment,
        "commit": commit_of(),
    }


def as_json(outcomes: Sequence[Outcome], seconds: float) -> None:
    """What was counted, as the last line of JSON."""
    print(json.dumps(summary(outcomes, seconds)), flush=True)


def show(outcomes: Sequence[Outcome], seconds: float) -> None:
    counted, out = summary(outcomes, seconds), display.output()
    table = Table("group", *("entries", *STANDINGS), title="The corpora of the gate")
    for group, counts in counted["groups"].items():
        table.add_row(group, *map(str, counts.values()))
    out.print(table)
    stages = Table("refused at", "bad entries", title="Who refused them")
    for stage, count in counted["refused_by"].items():
        stages.add_row(stage, str(count))
    out.print(stages)
    parts = ", ".join(f"{p} {s} s" for p, s in counted["seconds"].items())
    out.print(f"{len(outcomes)} candidates in {counted['wall']} s: {counted['per_minute']} a minute ({parts})")
    bad, honest = counted["bad"], counted["honest"]
    out.print(f"bad admitted: {bad['admitted']} of {bad['entries']} ({bad['undecided']} not decided here)")
    out.print(f"honest refused: {honest['refused']} of {honest['entries']} ({honest['undecided']} not decided here)")
    for name, why in counted["surprises"].items():
        out.print(f"surprise: {name}: {why}", markup=False, soft_wrap=True)
