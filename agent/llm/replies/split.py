"""Cuts a reply into candidates: by headings such as `## Candidate 2: title`, outside of fences and edits.

What stands in a fence is never a heading, for it may be a kernel's comment. Only where a piece cannot be read and holds
a heading in a fence, which then was never closed, `again` cuts it there.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pgo_agent.agent.llm.replies import search_replace
from pgo_agent.agent.llm.replies.fences import idea, lines

MOST = 4  # candidates of a reply
_NAMES = r"(?:candidate|proposal|option|variant)"
_NUMBER = r"[ \t]*#?(?:\d+|[a-z]\b)?[ \t]*(?:[:.)*_\u2013\u2014-]+[ \t]*(.*))?"
_HEADING = re.compile(rf"(?:#{{1,6}}[ \t]*[*_]*|[*_]{{2}}){_NAMES}\b{_NUMBER}", re.I)
_BARE = re.compile(rf"{_NAMES}[ \t]*#?\d+(?:[ \t]*[:.)]+[ \t]*(.*))?", re.I)
_WIDEST = 300  # columns of a heading


@dataclass(frozen=True)
class Piece:
    """The text of one candidate."""

    number: int  # from 1; 0 for what stands under no heading
    title: str
    text: str

    @property
    def rationale(self) -> str:
        said = idea(self.text)
        return f"{self.title}: {said}" if self.title and said else self.title or said


def cut(text: str) -> list[Piece]:
    """The candidates of a plain text in order, after what stands above the first heading, if anything does."""
    for heading in (_HEADING, _BARE):
        pieces = _pieces(text, heading, fenced=True)
        if len(pieces) > 1 or pieces[0].number:
            break
    return [p for p in pieces if p.number or p.text.strip()]


def again(piece: Piece) -> list[Piece]:
    """A piece cut at headings wherever they stand; nothing when it holds none."""
    found = _pieces(piece.text, _HEADING, fenced=False)
    return [Piece(piece.number, piece.title, found[0].text), *found[1:]] if len(found) > 1 else []


def _pieces(text: str, heading: re.Pattern[str], fenced: bool) -> list[Piece]:
    found: list[tuple[str, list[str]]] = [("", [])]
    for line, outside in _outside(text, fenced):
        title = _title(line, heading) if outside else None
        if title is None:
            found[-1][1].append(line)
        else:
            found.append((title, []))
    pieces = [Piece(i, title, "\n".join(body)) for i, (title, body) in enumerate(found)]
    return pieces[1:] if len(pieces) > 1 and not pieces[0].text.strip() else pieces


def _outside(text: str, fenced: bool) -> Iterator[tuple[str, bool]]:
    """Each line, and whether it stands outside of edits, and of fences where these count."""
    editing = False
    for line in lines(text):
        editing = search_replace.begins(line.text) or (editing and not search_replace.ends(line.text))
        yield line.text, not editing and not (fenced and line.inside)


def _title(line: str, heading: re.Pattern[str]) -> str | None:
    """What a heading says behind its number; None for a line that is none."""
    line = line.strip()
    found = heading.fullmatch(line) if len(line) <= _WIDEST else None
    return (found[1] or "").strip(" \t*_#") if found else None
