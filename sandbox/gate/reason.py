"""Why a stage says what it says, as typed clauses, and its two renderings: for a person, and for a model.

A person is told everything. A model is told no bound, no count of held-out cases, and of what was seen on a held-out
case only that there is one: whoever knows them can make a kernel that is right there alone. Stages say of each clause
what it is when they write it, so nothing has to be found in prose again. Plain data; relies on `coverage.py` for what
it counts, and runs nothing.
"""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile
from typing import Any

from pgo_agent.sandbox.gate.coverage import HELD_OUT, Coverage

FAILS = "fails on a case that is not shown"
UNTOLD = "its reason may be of a case that is not shown"
_SIGNS = ("held-out", "held_out", "held out", "heldout")


class Kind(StrEnum):
    SAID = "said"  # our own words, with nothing in them that is not public
    QUOTED = "quoted"  # words of a compiler, an exception or a candidate: they may name anything
    WITHHELD = "withheld"  # a bound, or a count of held-out cases: for a person alone
    STORED = "stored"  # prose that came without its clauses, whose parts nobody told apart


@dataclass(frozen=True)
class Clause:
    """A piece of a reason, as it is said to a person, and what it is about."""

    text: str
    kind: Kind = Kind.SAID
    case: str = ""  # with its section: CASES/even, HELD_OUT/odd; empty: of no case
    output: int | None = None  # index
    measured: float | None = None
    bound: float | None = None  # that `measured` broke

    @property
    def is_held_out(self) -> bool:
        return self.case.startswith(HELD_OUT)

    def as_json(self) -> dict[str, Any]:
        """The fields that say something."""
        more = {"case": self.case or None, "output": self.output, "measured": self.measured, "bound": self.bound}
        return {"kind": str(self.kind), "text": self.text} | {k: v for k, v in more.items() if v is not None}


@dataclass(frozen=True)
class Reason:
    """Clauses that make one line together; without any it is empty, and false."""

    clauses: tuple[Clause, ...] = ()

    def __add__(self, other: "Reason") -> "Reason":
        return Reason(self.clauses + other.clauses)

    def __bool__(self) -> bool:
        return bool(self.clauses)

    def __str__(self) -> str:
        return self.for_person()

    @property
    def is_held_out(self) -> bool:
        """Whether any of it was seen on a held-out case."""
        return any(c.is_held_out for c in self.clauses)

    def for_person(self) -> str:
        """Everything."""
        return "".join(c.text for c in self.clauses)

    def for_model(self, hidden: Collection[str]) -> str:
        """What a model may know. `hidden`: names of held-out cases, without their section.

        Words that are not ours are shown whole or not at all: what names a held-out case may say anything of it.
        """
        if self.is_held_out or any(c.kind is Kind.QUOTED and _may_tell(c.text, hidden) for c in self.clauses):
            return FAILS
        if any(c.kind is Kind.STORED and (_may_tell(c.text, hidden) or " above " in c.text) for c in self.clauses):
            return UNTOLD  # of it a bound could only be cut out by its wording, which may have been another
        return "".join(c.text for c in self.clauses if c.kind is not Kind.WITHHELD)

    def as_json(self) -> list[dict[str, Any]]:
        return [c.as_json() for c in self.clauses]


NONE = Reason()


def from_json(text: str, clauses: Sequence[Mapping[str, Any]] | None) -> Reason:
    """What `as_json` gave; of a judge that gave its text alone, a reason that tells a model nothing in doubt."""
    if clauses is None:
        return stored(text)
    return Reason(tuple(Clause(**{**c, "kind": Kind(c["kind"])}) for c in clauses))


def mentions(text: str, names: Collection[str]) -> bool:
    """Whether one of the names stands in a text as a word."""
    return not set(re.findall(r"[\w.-]+", text)).isdisjoint(names)


def _may_tell(text: str, hidden: Collection[str]) -> bool:
    return any(sign in text.lower() for sign in _SIGNS) or mentions(text, hidden)


# what stages write ----------------------------------------------------------------------------------------------------


def plain(text: str) -> Reason:
    """Says it in our own words, which hold nothing secret."""
    return Reason((Clause(text),))


def quoted(text: str, case: str = "") -> Reason:
    """Gives the words of a compiler, an exception or a candidate, seen on a `case` where one is named."""
    return Reason((Clause(text, Kind.QUOTED, case),))


def withheld(text: str, bound: float | None = None) -> Reason:
    """Says to a person alone what no model may know."""
    return Reason((Clause(text, Kind.WITHHELD, bound=_finite(bound)),))


def stored(text: str) -> Reason:
    """Takes prose that came without its clauses: from an older record, or an older judge."""
    return Reason((Clause(text, Kind.STORED),))


def of_case(case: str, detail: str = "", text: str | None = None) -> Reason:
    """Names the case that the rest is about, unless it is held out.

    `detail`: stress input and configuration. `text`: how the case is named to a person, where otherwise.
    """
    return Reason((Clause((shown(case) if text is None else text) + detail, case=case),))


def figure(what: str, output: int, measured: float, bound: float) -> Reason:
    """Says by how much an output breaks a bound: `output 0: max error 3 above 0.02`."""
    error = Clause(f"output {output}: {what} {measured:.3g}", output=output, measured=_finite(measured))
    return Reason((error,)) + withheld(f" above {bound:.3g}", bound)


def counted(coverage: Coverage) -> Reason:
    """Says what was looked at: `2 small cases, 1 of 2 held-out cases`."""
    names, public = [n for n, c in coverage.counts.items() if c.of], coverage.public.counts
    if not names:
        return plain(coverage.counted())
    before = len(list(takewhile(lambda n: n not in public, names)))  # then no comma is left at the beginning
    pieces = NONE
    for i, name in enumerate(names):
        words = Coverage({name: coverage.counts[name]}).counted()
        pieces += withheld(", ") if 0 < i <= before else NONE
        text = words if i <= before else f", {words}"
        pieces += plain(text) if name in public else withheld(text)
    return pieces


def left_out(coverage: Coverage) -> Reason:
    """Says what was not looked at, each reason once: `even, ragged (bf16)`; empty for nothing. No held-out case."""
    reasons = coverage.public.by_reason().items()
    return joined(", ", [plain(f"{', '.join(names)} (") + quoted(why) + plain(")") for why, names in reasons])


def joined(between: str, reasons: Sequence[Reason]) -> Reason:
    """Puts words of ours between reasons."""
    result = NONE
    for n, reason in enumerate(reasons):
        result += (plain(between) if n else NONE) + reason
    return result


def shown(case: str) -> str:
    """Gives a case's name for whoever proposes: held-out ones are not named."""
    return "a held-out case" if case.startswith(HELD_OUT) else case.split("/", 1)[-1]


def _finite(x: float | None) -> float | None:
    """JSON has no other numbers, and a wrong result may err by NaN."""
    return x if x is not None and math.isfinite(x) else None
