"""The reason of a verdict as typed clauses, with two renderings: for a person, and for a model.

A person sees everything. A model sees no bound, no count of held-out cases, and of a result on a held-out case only
that there is one: with more it could fit a kernel to them. Stages give each clause its kind when they write it, so
nothing has to be parsed from prose. Plain data; relies on `coverage.py`; runs nothing.
"""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile
from typing import Any

from pgo_agent.sandbox import json_codec
from pgo_agent.sandbox.gate.coverage import HELD_OUT, Coverage
from pgo_agent.sandbox.json_codec import JsonObject

FAILS = "fails on a case that is not shown"
UNTOLD = "its reason may be of a case that is not shown"
_SIGNS = ("held-out", "held_out", "held out", "heldout")


class Kind(StrEnum):
    SAID = "said"  # our own words, with nothing in them that is not public
    QUOTED = "quoted"  # words of a compiler, an exception or a candidate: they may name anything
    WITHHELD = "withheld"  # a bound, or a count of held-out cases: for a person alone
    STORED = "stored"  # prose that came without clauses


@dataclass(frozen=True)
class Clause:
    """A part of a reason: its text for a person, and what it is about."""

    text: str
    kind: Kind = Kind.SAID
    case: str = ""  # with its section: CASES/even, HELD_OUT/odd; empty: of no case
    output: int | None = None  # index
    measured: float | None = None
    bound: float | None = None  # that `measured` broke

    @property
    def is_held_out(self) -> bool:
        return self.case.startswith(HELD_OUT)

    def as_json(self) -> JsonObject:
        """Return the fields that are not empty."""
        more = {"case": self.case or None, "output": self.output, "measured": self.measured, "bound": self.bound}
        return {"kind": str(self.kind), "text": self.text} | {k: v for k, v in more.items() if v is not None}


@dataclass(frozen=True)
class Reason:
    """Clauses that form one line; without any it is false."""

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
        """Return the whole text."""
        return "".join(c.text for c in self.clauses)

    def for_model(self, hidden: Collection[str]) -> str:
        """Return what a model may know. `hidden`: names of held-out cases, without their section.

        Quoted words are shown whole or not at all: text that names a held-out case may say anything of it.
        """
        if self.is_held_out or any(c.kind is Kind.QUOTED and _may_tell(c.text, hidden) for c in self.clauses):
            return FAILS
        if any(c.kind is Kind.STORED and (_may_tell(c.text, hidden) or " above " in c.text) for c in self.clauses):
            return UNTOLD  # a bound in it could only be removed by its wording, which may vary
        return "".join(c.text for c in self.clauses if c.kind is not Kind.WITHHELD)

    def as_json(self) -> list[JsonObject]:
        return [c.as_json() for c in self.clauses]


NONE = Reason()


def of_json(stage: JsonObject) -> Reason:
    """Return the reason in a verdict or an evidence that is JSON."""
    return from_json(str(stage["reason"]), json_codec.from_json(tuple[JsonObject, ...] | None, stage.get("why")))


def from_json(text: str, clauses: Sequence[Mapping[str, Any]] | None) -> Reason:
    """Read what `as_json` gave; a text without clauses becomes a reason that hides doubtful parts from a model."""
    if clauses is None:
        return stored(text)
    return Reason(tuple(Clause(**{**c, "kind": Kind(c["kind"])}) for c in clauses))


def mentions(text: str, names: Collection[str]) -> bool:
    """Whether one of the names is a word of a text."""
    return not set(re.findall(r"[\w.-]+", text)).isdisjoint(names)


def _may_tell(text: str, hidden: Collection[str]) -> bool:
    return any(sign in text.lower() for sign in _SIGNS) or mentions(text, hidden)


# what stages write ----------------------------------------------------------------------------------------------------


def plain(text: str) -> Reason:
    """Return a reason in our own words, which hold nothing secret."""
    return Reason((Clause(text),))


def quoted(text: str, case: str = "") -> Reason:
    """Return the words of a compiler, an exception or a candidate, seen on `case` if given."""
    return Reason((Clause(text, Kind.QUOTED, case),))


def withheld(text: str, bound: float | None = None) -> Reason:
    """Return what only a person may know."""
    return Reason((Clause(text, Kind.WITHHELD, bound=_finite(bound)),))


def stored(text: str) -> Reason:
    """Return prose that came without clauses: from an older record, or an older judge."""
    return Reason((Clause(text, Kind.STORED),))


def of_case(case: str, detail: str = "", text: str | None = None) -> Reason:
    """Return the name of the case that the rest is about, unless it is held out.

    `detail`: stress input and configuration. `text`: another name of the case for a person.
    """
    return Reason((Clause((shown(case) if text is None else text) + detail, case=case),))


def figure(what: str, output: int, measured: float, bound: float) -> Reason:
    """Return by how much an output breaks a bound: `output 0: max error 3 above 0.02`."""
    error = Clause(f"output {output}: {what} {measured:.3g}", output=output, measured=_finite(measured))
    return Reason((error,)) + withheld(f" above {bound:.3g}", bound)


def counted(coverage: Coverage) -> Reason:
    """Return what was checked: `2 small cases, 1 of 2 held-out cases`."""
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
    """Return what was left out, each reason once: `even, ragged (bf16)`. Held-out cases are not named."""
    reasons = coverage.public.by_reason().items()
    return joined(", ", [plain(f"{', '.join(names)} (") + quoted(why) + plain(")") for why, names in reasons])


def joined(between: str, reasons: Sequence[Reason]) -> Reason:
    """Join reasons with words of ours between them."""
    result = NONE
    for n, reason in enumerate(reasons):
        result += (plain(between) if n else NONE) + reason
    return result


def shown(case: str) -> str:
    """Return a case's name for a proposer: held-out ones are not named."""
    return "a held-out case" if case.startswith(HELD_OUT) else case.split("/", 1)[-1]


def _finite(x: float | None) -> float | None:
    """Return finite numbers only: JSON has no others, and an error may be NaN."""
    return x if x is not None and math.isfinite(x) else None
