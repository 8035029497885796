"""What `pgo-agent eval mutants` prints: fates by operator and by base, who caught what, and every survivor."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from pgo_agent.agent.views import summary as display
from pgo_agent.evals.mutants import outcomes
from pgo_agent.evals.mutants.outcomes import FATES
from pgo_agent.evals.mutants.results import Row
from rich.table import Table


class Summary(TypedDict):
    mutants: int
    fates: dict[str, int]
    caught_by: dict[str, int]
    operators: dict[str, dict[str, int]]
    bases: dict[str, dict[str, int]]
    seconds: float
    survivors: list[str]
    unsound: list[str]


@dataclass(frozen=True)
class Report:
    """Rows with what they mean."""

    mutants: Sequence[tuple[Row, str]]  # and their fates
    unsound: Sequence[str]

    @property
    def survivors(self) -> list[Row]:
        return [row for row, fate in self.mutants if fate == "survived"]

    @property
    def code(self) -> int:
        """1 when one survived that nobody explained, or what is held to be right is refused; else 0."""
        return int(bool(self.survivors or self.unsound))

    def by(self, key: Callable[[Row], str]) -> dict[str, dict[str, int]]:
        """Return fates of all that have a key in common, in the order of the key."""
        by_key: dict[str, Counter[str]] = {}
        for row, fate in self.mutants:
            by_key.setdefault(key(row), Counter())[fate] += 1
        return {k: {f: by_key[k][f] for f in FATES} for k in sorted(by_key)}

    def summary(self) -> Summary:
        """Return everything that is counted, as plain values."""
        caught = [row for row, fate in self.mutants if fate == "caught"]
        return {
            "mutants": len(self.mutants),
            "fates": self.by(lambda _: "all").get("all", {}),
            "caught_by": dict(Counter(f"{r['verdict']} ({r['stage']})" for r in caught).most_common()),
            "operators": self.by(lambda r: str(r["operator"])),
            "bases": self.by(lambda r: str(r["base"])),
            "seconds": round(sum(r["seconds"] for r, _ in self.mutants), 1),
            "survivors": [f"{r['mutant']}: {r['after']}" for r in self.survivors],
            "unsound": list(self.unsound),
        }


def of_rows(rows: Mapping[str, Row]) -> Report:
    """Return the report of rows of mutants and their bases, by name."""
    explanations = outcomes.explained()
    judged = [
        (r, outcomes.fate(r, rows.get(f"{r['base']}:itself"), explanations)) for r in rows.values() if r["operator"]
    ]
    return Report(judged, [problem for r in rows.values() if (problem := outcomes.unsound(r, explanations))])


def as_json(report: Report) -> None:
    """Print what was counted, as the last line of JSON."""
    print(json.dumps(report.summary()), flush=True)


def show(report: Report) -> None:
    counted, out = report.summary(), display.output()
    for name in ("operators", "bases"):
        table = Table(name.removesuffix("s"), "tried", *FATES, title=f"Mutants, by {name}")
        for key, counts in counted[name].items():
            table.add_row(key, str(sum(counts.values())), *map(str, counts.values()))
        out.print(table)
    out.print("caught: " + ", ".join(f"{n} {by}" for by, n in counted["caught_by"].items()), soft_wrap=True)
    totals = ", ".join(f"{n} {fate}" for fate, n in counted["fates"].items())
    out.print(f"{counted['mutants']} mutants: {totals}; {counted['seconds']} s of work")
    for row in report.survivors:
        out.print(f"survived: {line(row)}", markup=False, soft_wrap=True)
    for problem in report.unsound:
        out.print(f"unsound: {problem}", markup=False, soft_wrap=True)


def line(row: Row) -> str:
    """Return a mutant in one line: its name, what it changes, what was said of it."""
    bits = f"; bits: {json.dumps(row['bits'])}" if row["bits"] else ""
    return f"{row['mutant']}: {row['before']} -> {row['after']} ({row['verdict']}: {row['reason']}{bits})"
