"""What a mutant's result means: caught, of the same code, honestly not decided, explained, or survived.

Only a survivor speaks against the gate: it was called right (or no slower, or not told apart by the clock), its code is
another, and nobody has read it. `explained.toml` is what was read: which changes change no result, and why.

    [[explained]]
    base = ["rms_norm", "honest/norm_*"]        # or one; a star stands for anything
    operator = "mask"
    after = ["tl.store(...)"]                   # the changed lines, or one; without: all of the operator
    before = "tl.store(...)"                    # what they were, where several lines become the same one
    kind = "equal"                              # the same bits: held against `bits.py` wherever that can tell
    why = "..."

Other kinds: `rounding` (the results differ by less than rounding them may), `gpu` (nothing without a GPU can tell: it
explains nothing where one judged).
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from pgo_agent.agent.exit_codes import FAULTY
from pgo_agent.evals.mutants.results import Row
from pgo_agent.sandbox.gate.verdict import Verdict

FILE = Path(__file__).parent / "explained.toml"
KINDS = ("equal", "rounding", "gpu")
FATES = ("caught", "same code", "not decided", "explained", "survived")
_OPEN = {Verdict.BUILT, Verdict.UNDECIDED}
_CLOCK = ("time", "quick")  # stages behind those that compare results: who is undecided there is right


@dataclass(frozen=True)
class Explained:
    """Why changes of one kind change no result."""

    bases: tuple[str, ...]
    operator: str
    after: tuple[str, ...]  # empty: any
    kind: str
    why: str
    before: tuple[str, ...] = ()  # what the lines were, where several lines become the same; empty: any

    def of(self, base: str) -> bool:
        return any(fnmatchcase(base, pattern) for pattern in self.bases)

    def fits(self, row: Row) -> bool:
        changed = (not self.after or row["after"] in self.after) and (not self.before or row["before"] in self.before)
        return self.of(row["base"]) and row["operator"] == self.operator and changed


@cache
def explained(file: Path = FILE) -> Sequence[Explained]:
    """Return all that was read. Raises KeyError or ValueError for an entry that says nothing clear."""
    entries = tomllib.loads(file.read_text()).get("explained", []) if file.is_file() else []
    return tuple(map(_read, entries))


def _read(entry: Mapping[str, Any]) -> Explained:
    def many(value: Any) -> tuple[str, ...]:
        return (value,) if isinstance(value, str) else tuple(value)

    after, before = (many(entry.get(name, ())) for name in ("after", "before"))
    result = Explained(many(entry["base"]), entry["operator"], after, entry["kind"], entry["why"], before)
    if result.kind not in KINDS or not result.why.strip() or ("*" in result.bases and result.after):
        raise ValueError(f"an explanation of {result.operator} on {result.bases} is not clear")
    return result


def explanation(row: Row, explanations: Sequence[Explained]) -> Explained | None:
    """Return what explains that a mutant is called right; None when nothing does, or its bits say otherwise."""
    for e in explanations:
        if e.fits(row) and not (e.kind == "gpu" and row["measured"]) and not (e.kind == "equal" and _differ(row)):
            return e
    return None


def _differ(row: Row) -> bool:
    return bool((row["bits"] or {}).get("differ"))


def fate(row: Row, base: Row | None, explanations: Sequence[Explained]) -> str:
    """Return one of FATES; `base` is the row of the mutant's base."""
    if row["verdict"] in FAULTY:
        return "caught"
    if base and row["plans"] and row["plans"] == base["plans"]:
        return "same code"
    if row["verdict"] in _OPEN and not (row["measured"] and row["stage"] in _CLOCK):
        return "not decided"
    return "explained" if explanation(row, explanations) else "survived"


def unsound(row: Row, explanations: Sequence[Explained]) -> str:
    """Return what must not be: a base that is refused, or a wrong mutant whose results are said to be the same."""
    text = f"{row['mutant']} is {row['verdict']} at {row['stage']}: {row['reason']}"
    if not row["operator"]:
        return f"a base is refused: {text}" if row["verdict"] in FAULTY else ""
    equal = next((e for e in explanations if e.kind == "equal" and e.fits(row)), None)
    results = row["verdict"] in (Verdict.WRONG, Verdict.RACE, Verdict.DEADLOCK)
    return f"explained ({equal.why}), and refused: {text}" if equal and results else ""
