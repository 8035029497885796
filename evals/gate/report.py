"""What the gate made of the corpora: `pgo-agent eval gate` prints it, and this module records what it printed.

`python -m pgo_agent.evals.gate.report FILES` takes what `pgo-agent eval gate --json` printed on a GPU machine, and
writes a line for each entry to evals/results/gate-DEVICE.jsonl; of an entry that several files hold, the last. The
whole corpora take longer than some machines are to be had for: parts add up, and what was recorded before may be one of
FILES. Of a file with one target whose run came to its end there is also a line with the number judged and the seconds,
if there are enough of them. What no GPU judged cannot be recorded; what the corpora do not hold any more is left out.
Counts are always of such lines.
"""

import argparse
import json
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypedDict

from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.agent.version import commit_of
from pgo_agent.agent.views import summary as display
from pgo_agent.evals.gate import entries as corpora
from pgo_agent.evals.gate import run
from pgo_agent.evals.gate.entries import GROUPS, Entry
from pgo_agent.evals.gate.run import Outcome
from pgo_agent.evals.runner.folders import RESULTS
from pgo_agent.sandbox import devices
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.judge.machine import Environment
from rich.table import Table


class EntryLine(TypedDict):
    """What became of one entry of the corpora."""

    entry: str
    does: str
    target: str
    ideas: list[int]
    standing: str
    verdict: str
    stage: str
    reason: str
    seconds: dict[str, float]
    stages: dict[str, float]
    surprise: str
    environment: JsonObject | None
    commit: str


class GateLine(EntryLine, total=False):
    """A recorded line: one entry, or a batch of them that were judged in one run, which has no field of an entry."""

    what: str
    entries: int
    wall: float


class Counts(TypedDict):
    groups: dict[str, dict[str, int]]
    bad: dict[str, int]
    honest: dict[str, int]
    refused_by: dict[str, int]
    stages: dict[str, list[float]]


class Summary(TypedDict):
    """What is counted of a run; times in seconds of wall clock."""

    groups: dict[str, dict[str, int]]
    bad: dict[str, int]
    honest: dict[str, int]
    refused_by: dict[str, int]
    stages: dict[str, dict[str, float]]
    seconds: dict[str, float]
    wall: float
    per_minute: float
    surprises: dict[str, str]


class Rates(TypedDict):
    """What is counted of recorded lines."""

    groups: dict[str, dict[str, int]]
    bad: dict[str, int]
    honest: dict[str, int]
    refused_by: dict[str, int]
    environment: JsonObject | None
    most_refused: int
    seconds: dict[str, float]
    slowest: float
    per_minute: float | None


ENTRY, BATCH = "gate", "gate batch"  # what recorded lines are
STANDINGS = ("refused", "admitted", "undecided")
HONEST = "honest"  # the group that must not be refused
_PARTS = ("trace", "compile", "judge")
_OF_A_BATCH = 10  # entries, at least


def main(patterns: Sequence[str], settings: RunSettings, as_json: bool) -> int:
    """Run the corpora, or what the patterns name, and print the outcome; return the exit code."""
    known = corpora.load()
    for pattern in patterns:
        if not any(_named(e, pattern) for e in known):
            raise UsageFault(f"no entry of the corpora is called {pattern}", "give a part of a name, or a target")
    chosen = [e for e in known if not patterns or any(_named(e, p) for p in patterns)]
    report = (lambda o: print(json.dumps(as_values(o)), flush=True)) if as_json else (lambda _: None)
    outcomes, seconds = run.run(chosen, settings, lambda text: print(text, file=sys.stderr, flush=True), report=report)
    if as_json:
        print(json.dumps(summary(outcomes, seconds)), flush=True)
    else:
        show(outcomes, seconds)
    return code(outcomes)


def _named(entry: Entry, pattern: str) -> bool:
    return pattern in entry.name or pattern == entry.target


def code(outcomes: Iterable[Outcome]) -> int:
    """Return 1 when a bad one was admitted or an honest one refused, else 0."""
    return int(any(o.standing == ("refused" if o.entry.honest else "admitted") for o in outcomes))


def as_values(o: Outcome) -> EntryLine:
    """Return an outcome as plain values."""
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
        "environment": o.environment.as_json() if o.environment else None,
        "commit": commit_of(),
    }


# what is counted ------------------------------------------------------------------------------------------------------


def counted(lines: Sequence[EntryLine]) -> Counts:
    """Count the standings of each group, of the bad and of the honest; which stage refused the bad; seconds by
    stage."""
    groups = {g: [e for e in lines if e["entry"].startswith(f"{g}/")] for g in GROUPS}
    bad = [e for e in lines if not e["entry"].startswith(f"{HONEST}/")]
    stages: dict[str, list[float]] = {}
    for stage, seconds in (s for e in lines for s in e.get("stages", {}).items()):
        stages.setdefault(stage, []).append(seconds)
    return {
        "groups": {g: _standings(of_group) for g, of_group in groups.items()},
        "bad": _standings(bad),
        "honest": _standings(groups[HONEST]),
        "refused_by": dict(Counter(e["stage"] for e in bad if e["standing"] == "refused").most_common()),
        "stages": stages,
    }


def _standings(lines: Sequence[EntryLine]) -> dict[str, int]:
    counts = Counter(e["standing"] for e in lines)
    return {"entries": len(lines), **{s: counts[s] for s in STANDINGS}}


def summary(outcomes: Sequence[Outcome], seconds: float) -> Summary:
    """Return everything that is counted of a run, as plain values; times in seconds of wall clock."""
    counts = counted([as_values(o) for o in outcomes])
    stages = {s: {"looked at": len(t), "median s": round(statistics.median(t), 3)} for s, t in counts["stages"].items()}
    return {
        "groups": counts["groups"],
        "bad": counts["bad"],
        "honest": counts["honest"],
        "refused_by": counts["refused_by"],
        "seconds": {p: round(sum(o.seconds.get(p, 0.0) for o in outcomes), 1) for p in _PARTS},
        "stages": stages,
        "wall": round(seconds, 1),
        "per_minute": round(60 * len(outcomes) / seconds, 1),
        "surprises": {o.entry.name: o.surprise for o in outcomes if o.surprise},
    }


def rates(lines: Sequence[GateLine]) -> Rates | None:
    """Return everything that is counted of recorded lines, as plain values; None without entries."""
    entries = [line for line in lines if line["what"] == ENTRY]
    if not entries:
        return None
    counts = counted(entries)
    medians = {s: statistics.median(seconds) for s, seconds in counts["stages"].items()}
    batches = [line for line in lines if line["what"] == BATCH]
    wall = sum(b["wall"] for b in batches)
    return {
        "bad": counts["bad"],
        "honest": counts["honest"],
        "refused_by": counts["refused_by"],
        "environment": entries[0]["environment"],
        "groups": {g: standings for g, standings in counts["groups"].items() if standings["entries"]},
        "most_refused": max(counts["refused_by"].values(), default=1),
        "seconds": medians,
        "slowest": max(medians.values(), default=1.0),
        "per_minute": 60 * sum(b["entries"] for b in batches) / wall if wall else None,  # builds and baselines included
    }


def show(outcomes: Sequence[Outcome], seconds: float) -> None:
    counts, out = summary(outcomes, seconds), display.output()
    table = Table("group", *("entries", *STANDINGS), title="The corpora of the gate")
    for group, standings in counts["groups"].items():
        table.add_row(group, *map(str, standings.values()))
    out.print(table)
    stages = Table("refused at", "bad entries", title="Who refused them")
    for stage, count in counts["refused_by"].items():
        stages.add_row(stage, str(count))
    out.print(stages)
    parts = ", ".join(f"{p} {s} s" for p, s in counts["seconds"].items())
    out.print(f"{len(outcomes)} candidates in {counts['wall']} s: {counts['per_minute']} a minute ({parts})")
    bad, honest = counts["bad"], counts["honest"]
    out.print(f"bad admitted: {bad['admitted']} of {bad['entries']} ({bad['undecided']} not decided here)")
    out.print(f"honest refused: {honest['refused']} of {honest['entries']} ({honest['undecided']} not decided here)")
    for name, why in counts["surprises"].items():
        out.print(f"surprise: {name}: {why}", markup=False, soft_wrap=True)


# what is recorded -----------------------------------------------------------------------------------------------------


def merged(files: Iterable[Path]) -> list[GateLine]:
    """Return the entries, by name, then the batches. Raises UsageFault for a file that says nothing of a GPU."""
    names = {e.name for e in corpora.load()}
    by_name: dict[str, GateLine] = {}
    batches = []
    for file in files:
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        machine = next((line["environment"] for line in lines if line.get("environment")), None)
        if machine is None:
            raise UsageFault(f"{file}: no GPU judged this", "record what a GPU machine printed")
        entry_lines = [{"what": ENTRY} | line | {"environment": machine} for line in lines if "entry" in line]
        by_name |= {line["entry"]: line for line in entry_lines if line["entry"] in names}
        batches += [line for line in lines if line.get("what") == BATCH]
        one_target = len({line["target"] for line in entry_lines}) == 1
        if "bad" in lines[-1] and one_target and len(entry_lines) >= _OF_A_BATCH:
            entries = lines[-1]["bad"]["entries"] + lines[-1]["honest"]["entries"]
            batch = {"what": BATCH, "entries": entries, "wall": lines[-1]["wall"]}
            batches.append(batch | {k: lines[0][k] for k in ("target", "commit")} | {"environment": machine})
    return [*(by_name[n] for n in sorted(by_name)), *batches]


def record() -> None:
    parser = argparse.ArgumentParser(description="Records what `pgo-agent eval gate --json` printed on a GPU machine.")
    parser.add_argument("files", nargs="+", type=Path)
    lines = merged(parser.parse_args().files)
    if not lines:
        raise UsageFault("nothing was judged", "give what `pgo-agent eval gate --json` printed")
    (gpu,) = {str(Environment.from_json(line["environment"]).gpu) for line in lines}
    device = devices.named(gpu)
    out = RESULTS / f"gate-{device.key if device else gpu}.jsonl"
    out.write_text("".join(json.dumps(line) + "\n" for line in lines))
    print(f"{len(lines)} lines in {out}")


if __name__ == "__main__":
    record()
