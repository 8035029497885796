"""Where in a source an op is from: MLIR's locations, read. The only place that reads them.

After MLIR's location syntax: "file":line:column, "name"(location), callsite(callee at caller), fused<why>[...], and
aliases. Triton gives the name of the variable that a statement assigns to all ops of that statement. Work and memory
are linear in the text, however its aliases name each other. It does not read the source, and raises nothing: what is
broken, nests too deep or leads to itself says nothing.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter

from pgo_agent.sandbox.ttgir.tokens import Unreadable, tokens

DEEPEST = 64  # locations written inside of one another; aliases may be chained without end
MOST = 64  # frames of a location, and names of a frame; Triton's have a few
_DIGITS = 9  # of a line or a column


@dataclass(frozen=True)
class Frame:
    """A place in a file."""

    file: str  # its whole path, as written
    line: int  # from 1; MLIR writes 0 where it knows none
    column: int
    names: tuple[str, ...] = ()  # written around it, the outermost first: variables that are assigned there


Frames = tuple[Frame, ...]


class Locations:
    """The locations of one text, by its aliases; each is read once.

    What they say, the innermost call first:
    - Of a fused location the first part that names a file counts.
    - A name around a call is of the caller, who assigns what the call gives.
    - Of more than `MOST` frames the innermost are kept; of more names of a frame the outermost.
    - An alias that leads to itself says nothing, and nor do aliases that name such a one.
    """

    def __init__(self, aliases: Mapping[str, str]) -> None:
        texts = {alias: _words(text) for alias, text in aliases.items() if text.startswith("loc(")}
        self._frames: dict[str, Frames] = {}
        for alias in _ordered(texts):
            self._frames[alias] = self._read(texts[alias])

    def frames(self, location: str) -> Frames:
        """Return what a location says; nothing for one that names no file."""
        if location not in self._frames:
            self._frames[location] = self._read(_words(location))
        return self._frames[location]

    def _read(self, words: Sequence[str]) -> Frames:
        try:
            return _Reading(words, self._frames).whole()
        except Unreadable:
            return ()


def _words(text: str) -> list[str]:
    """Return the words of a location; none of a text that is broken."""
    try:
        return [t.text for t in tokens(text) if t.kind != "space"]
    except Unreadable:
        return []


def _ordered(texts: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield each alias behind those that it names; none that leads to a circle."""
    sorter = TopologicalSorter({alias: [w for w in words if w in texts] for alias, words in texts.items()})
    with contextlib.suppress(CycleError):  # the sorter then still gives all that no circle holds up
        sorter.prepare()
    while ready := sorter.get_ready():
        yield from ready
        sorter.done(*ready)


class _Reading:
    """A place in the words of one location. Everything here raises Unreadable for what MLIR would not write."""

    def __init__(self, words: Sequence[str], by_alias: Mapping[str, Frames]) -> None:
        self.words, self.by_alias = words, by_alias
        self.at = self.depth = 0

    @property
    def next(self) -> str:
        return self.words[self.at] if self.at < len(self.words) else ""

    def take(self, *expected: str) -> str:
        word = self.next
        if not word or (expected and word not in expected):
            raise Unreadable(1, f"a location goes on with {word!r:.40}")
        self.at += 1
        return word

    def whole(self) -> Frames:
        frames = self.one()
        if self.next:
            raise Unreadable(1, "something stands behind a location")
        return frames

    def one(self) -> Frames:
        """Return the location that begins here."""
        if self.depth > DEEPEST:
            raise Unreadable(1, f"locations nest more than {DEEPEST} deep")
        self.depth += 1
        word = self.take()
        form = _FORMS.get(word, _Reading._quoted if word.startswith('"') else None)
        frames = form(self, word) if form else self.by_alias.get(word, ())
        self.depth -= 1
        return frames

    def _bracketed(self, word: str) -> Frames:
        """Return a location in brackets, behind loc or a name."""
        self.take("(")
        frames = self.one()
        self.take(")")
        return frames

    def _call(self, word: str) -> Frames:
        self.take("(")
        callee = self.one()
        self.take("at")
        caller = self.one()
        self.take(")")
        return (callee + caller)[:MOST]

    def _fused(self, word: str) -> Frames:
        self._skip_metadata()
        self.take("[")
        frames = self.one()
        while self.take(",", "]") == ",":
            part = self.one()
            frames = frames or part
        return frames

    def _skip_metadata(self) -> None:
        depth = 0
        while depth or self.next == "<":
            word = self.take()
            depth += (word == "<") - (word == ">")

    def _quoted(self, word: str) -> Frames:
        """Return a file with line and column, or a name, with or without a location in brackets."""
        text = word[1:-1]
        if self.next == ":":
            frame = Frame(text, self._number(), self._number())
            self._skip_end()
            return (frame,)
        inner = self._bracketed(word) if self.next == "(" else ()
        return (*inner[:-1], _named(inner[-1], text)) if inner else ()

    def _number(self) -> int:
        self.take(":")
        word = self.take()
        if not word.isdecimal() or len(word) > _DIGITS:
            raise Unreadable(1, f"{word!r:.40} is no line or column")
        return int(word)

    def _skip_end(self) -> None:
        """`to :9` or `to 12:9`, where a range ends."""
        if self.next == "to":
            self.take()
            while self.next == ":" or self.next.isdecimal():
                self.take()


def _named(frame: Frame, name: str) -> Frame:
    return replace(frame, names=(name, *frame.names)[:MOST])


_FORMS: dict[str, Callable[[_Reading, str], Frames]] = {
    "loc": _Reading._bracketed,
    "callsite": _Reading._call,
    "fused": _Reading._fused,
}
