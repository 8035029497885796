"""One change of a text, as all operators of mutation give it: where, what instead, and what it is called.

Mutants are never stored: the same text gives the same edits with the same names, in the same order.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Edit:
    operator: str  # which kind of change
    start: int  # characters from the beginning of the text
    end: int
    new: str  # what stands there instead

    def applied(self, text: str) -> str:
        return text[: self.start] + self.new + text[self.end :]

    def line(self, text: str) -> int:
        """Return the line on which it begins, from 1."""
        return text.count("\n", 0, self.start) + 1


@dataclass(frozen=True)
class Change:
    """An edit that was made."""

    name: str  # OPERATOR@LINE.NUMBER: the number counts what the operator does on the line
    operator: str
    line: int  # from 1, of both texts
    before: str  # that line, without the white space around it
    after: str
    text: str  # the whole new text


def changes(text: str, edits: Iterable[Edit]) -> Iterator[Change]:
    """Yield the texts that the edits make, each once: what changes nothing, or makes a text again, is left out."""
    texts, counted = {text}, Counter[tuple[str, int]]()
    for edit in sorted(edits, key=lambda e: (e.start, e.end, e.operator, e.new)):
        new, line = edit.applied(text), edit.line(text)
        if new in texts:
            continue
        texts.add(new)
        counted[edit.operator, line] += 1
        name = f"{edit.operator}@{line}.{counted[edit.operator, line]}"
        yield Change(name, edit.operator, line, _line(text, line), _line(new, line), new)


def _line(text: str, number: int) -> str:
    lines = text.split("\n")
    return lines[number - 1].strip() if number <= len(lines) else ""
