"""The words of MLIR text, with the white space between them kept: joined, the tokens are the text.

After MLIR's language reference (section "Identifiers and keywords"). Shapes (3x128xf16) are one token.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from pgo_agent.sandbox.errors import BadBundle

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*)
    |(?P<string>"(?:[^"\\\n]|\\.)*")
    |(?P<value>%(?:[0-9]+|[A-Za-z$._-](?:[A-Za-z0-9$._]|-(?!>))*)(?:\#[0-9]+)?)
    |(?P<alias>[#!][A-Za-z_][A-Za-z0-9_$.]*)
    |(?P<symbol>@(?:[A-Za-z_][A-Za-z0-9_$.]*|"(?:[^"\\\n]|\\.)*"))
    |(?P<label>\^[A-Za-z0-9$._-]+)
    |(?P<number>-?(?:0x[0-9A-Fa-f]+\b|[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|[0-9][A-Za-z0-9_]*))
    |(?P<word>[A-Za-z_][A-Za-z0-9_$.]*)
    |(?P<mark>->|::|[{}()\[\]<>=:,*+?/|;-])""",
    re.VERBOSE,
)


class Unreadable(BadBundle):
    """A text that is no TTGIR as MLIR prints it; `line` counts from 1."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"TTGIR line {line}: {problem}")
        self.line = line


class Token(NamedTuple):
    kind: str  # space, string, value, alias, symbol, label, number, word, mark
    text: str
    line: int  # of its first character, from 1
    spaced: bool  # white space stands before it


def tokens(text: str) -> Iterator[Token]:
    """Yield all tokens of a text in order. Raises Unreadable at a character that starts none."""
    at, line, spaced = 0, 1, True
    for match in _TOKEN.finditer(text):
        if match.start() != at:
            break
        kind, word = match.lastgroup or "", match[0]
        yield Token(kind, word, line, spaced)
        at, spaced = match.end(), kind == "space"
        if spaced:
            line += word.count("\n")  # nothing else has any
    if at < len(text):
        raise Unreadable(line, f"cannot read {text[at : at + 20]!r}")
