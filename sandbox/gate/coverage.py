"""What a check covered: how much of everything it checked, and what it left out, with the reason.

Evidence and verdicts use it: a check that covered nothing proves nothing. Plain data; runs nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from pgo_agent.sandbox.json_codec import JsonObject, Record

PUBLIC, HELD_OUT = "CASES/", "HELD_OUT/"  # begin the names of public and of held-out cases
HELD_OUT_CASES = "held-out cases"  # what their count is called


@dataclass(frozen=True)
class Count:
    """How many things of one kind were checked."""

    ran: int  # that were checked
    of: int  # that there are

    @property
    def whole(self) -> bool:
        return self.ran >= self.of


@dataclass(frozen=True)
class Coverage(Record):
    """What was checked, by kind (cases, configurations, loop iterations, bytes, ...), and what was not, and why."""

    counts: Mapping[str, Count] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)  # name of what was left out -> why

    @property
    def public(self) -> "Coverage":
        """The coverage without number and names of held-out cases: what a model may know."""
        counts = {n: c for n, c in self.counts.items() if n != HELD_OUT_CASES}
        return Coverage(counts, {n: why for n, why in self.skipped.items() if not n.startswith(HELD_OUT)})

    @property
    def empty(self) -> bool:
        """Whether nothing was checked."""
        return not any(c.ran for c in self.counts.values())

    def __add__(self, other: "Coverage") -> "Coverage":
        """Add both: counts of one kind add up."""
        names = dict.fromkeys((*self.counts, *other.counts))
        none = Count(0, 0)
        added = {
            n: Count(a.ran + b.ran, a.of + b.of)
            for n, a, b in ((n, self.counts.get(n, none), other.counts.get(n, none)) for n in names)
        }
        return Coverage(added, {**self.skipped, **other.skipped})

    def said(self) -> str:
        """Return it in words: `3 cases, 3 of 9 configurations; left out: big (bf16 is wrong in the interpreter)`."""
        return "; left out: ".join(part for part in (self.counted(), self.left_out()) if part)

    def counted(self) -> str:
        """Return the counts in words."""
        words = (
            _singular(f"{c.ran} {n}") if c.whole else f"{c.ran} of {c.of} {n}" for n, c in self.counts.items() if c.of
        )
        return ", ".join(words) or "nothing"

    def left_out(self) -> str:
        """Return what was left out in words, each reason once."""
        return ", ".join(f"{', '.join(names)} ({why})" for why, names in self.by_reason().items())

    def by_reason(self) -> dict[str, list[str]]:
        """Return reason -> names of everything that was left out for it."""
        names: dict[str, list[str]] = {}
        for name, why in self.skipped.items():
            names.setdefault(why, []).append(name)
        return names

    def as_json(self) -> JsonObject:
        """Return plain values, as `from_json` reads them."""
        counts = {n: [c.ran, c.of] for n, c in self.counts.items()}
        return {"counts": counts, "skipped": dict(self.skipped)}

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Read what `as_json` gave. An empty value or None covers nothing."""
        if not value:
            return cls()
        return cls({n: Count(*c) for n, c in value["counts"].items()}, dict(value["skipped"]))


def _singular(words: str) -> str:
    """Turn `1 cases` into `1 case`."""
    return words.removesuffix("s") if words.startswith("1 ") else words


NOTHING = Coverage()


def of(skipped: Mapping[str, str] | None = None, **counts: int | tuple[int, int]) -> Coverage:
    """Return coverage by kinds: `of(cases=3, loop_iterations=(12, 40))`; underscores stand for spaces."""
    pairs = {n.replace("_", " "): (c, c) if isinstance(c, int) else c for n, c in counts.items()}
    return Coverage({n: Count(*c) for n, c in pairs.items()}, dict(skipped or {}))
