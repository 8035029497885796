"""Cuts a reply into candidates: by headings such as `## Candidate 2: title`, outside of fences and edits.

A line in a fence is no heading, as it may be a comment of the kernel. Only if a piece cannot be read and has a heading
in a fence, probably one that was never closed, `again` cuts it there.
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
_OF = re.compile(r"edits (?:of|to) candidate #?(\d+)\b", re.I)
_WIDEST = 300  # columns of a heading


@dataclass(frozen=True)
class Piece:
    """The text of one candidate."""

    number: int  # from 1; 0 for text under no heading
    title: str
    text: str

    @property
    def rationale(self) -> str:
        sentence = idea(self.text)
        return f"{self.title}: {sentence}" if self.title and sentence else self.title or sentence

    @property
    def of(self) -> int:
        """The number of the candidate that it edits; 0 for the kernel that was shown."""
        found = _OF.match(self.title)
        return int(found[1]) if found else 0


def cut(text: str) -> list[Piece]:
    """Return the candidates of a plain text in order, after the text above the first heading, if any."""
    for heading in (_HEADING, _BARE):
        pieces = _pieces(text, heading, fenced=True)
        if len(pieces) > 1 or pieces[0].number:
            break
    return [p for p in pieces if p.number or p.text.strip()]


def again(piece: Piece) -> list[Piece]:
    """Return a piece cut at headings wherever they stand; empty if it holds none."""
    pieces = _pieces(piece.text, _HEADING, fenced=False)
    return [Piece(piece.number, piece.title, pieces[0].text), *pieces[1:]] if len(pieces) > 1 else []


def _pieces(text: str, heading: re.Pattern[str], fenced: bool) -> list[Piece]:
    sections: list[tuple[str, list[str]]] = [("", [])]
    for line, outside in _outside(text, fenced):
        title = _title(line, heading) if outside else None
        if title is None:
            sections[-1][1].append(line)
        else:
            sections.append((title, []))
    pieces = [Piece(i, title, "\n".join(body)) for i, (title, body) in enumerate(sections)]
    return pieces[1:] if len(pieces) > 1 and not pieces[0].text.strip() else pieces


def _outside(text: str, fenced: bool) -> Iterator[tuple[str, bool]]:
    """Yield each line, and whether it stands outside of edits, and, if `fenced`, of fences."""
    editing = False
    for line in lines(text):
        editing = search_replace.begins(line.text) or (editing and not search_replace.ends(line.text))
        yield line.text, not editing and not (fenced and line.inside)


def _title(line: str, heading: re.Pattern[str]) -> str | None:
    """The title of a heading; None for any other line."""
    line = line.strip()
    match = heading.fullmatch(line) if len(line) <= _WIDEST else None
    return (match[1] or "").strip(" \t*_#") if match else None
