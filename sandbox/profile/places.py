"""Lines of a TTGIR text -> lines of the Python source, by the same text with MLIR's locations.

Relies on MLIR's syntax of locations: files, names, call sites, fused ones. Both texts are what Triton prints of one
module, so their ops correspond one to one; where they do not, nothing is said. It does not read the Python source.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from pgo_agent.sandbox.profile.codec import Record
from pgo_agent.sandbox.ttgir import reader

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|#[\w$.]+|<[^>]*>|[\w$.-]+|[()\[\],:]')
_DEEPEST = 64  # call sites within one another


@dataclass(frozen=True)
class Frame(Record):
    file: str  # its last component
    line: int  # from 1
    column: int


@dataclass(frozen=True)
class Place(Record):
    """Where an op comes from."""

    names: tuple[str, ...]  # variables that it was assigned to, as the frontend saw it
    frames: tuple[Frame, ...]  # the innermost call first

    def line(self, file: str) -> int:
        """The innermost line of that file; 0 when there is none."""
        return next((f.line for f in self.frames if f.file == file), 0)

    @property
    def file(self) -> str:
        """The file of the outermost frame: where the kernel itself stands. Empty when nothing is known."""
        return self.frames[-1].file if self.frames else ""


NOWHERE = Place((), ())


def places(plain: str, located: str) -> dict[int, Place]:
    """TTGIR line of `plain` -> place. Empty when `located` is, or is another module's. Raises Unreadable."""
    if not located:
        return {}
    module = reader.parse(located)
    ops, known = list(reader.parse(plain).walk()), list(module.walk())
    if [op.name for op in ops] != [op.name for op in known]:
        return {}
    resolver = Resolver(module.aliases)
    return {a.line: resolver.place(b.location) for a, b in zip(ops, known, strict=True)}


class Resolver:
    """Reads the locations of one text, each alias once."""

    def __init__(self, aliases: Mapping[str, str]) -> None:
        self.aliases = aliases
        self.known: dict[str, Place] = {}

    def place(self, location: str, depth: int = 0) -> Place:
        """What a location says. Of a fused one the first part that names a file counts; a broken one says nothing."""
        if location not in self.known:
            try:
                self.known[location], _ = self._one(_TOKEN.findall(location), 0, depth)
            except (IndexError, ValueError):
                self.known[location] = NOWHERE
        return self.known[location]

    def _one(self, words: list[str], at: int, depth: int) -> tuple[Place, int]:
        """The location that begins at a word, and the index behind it. Raises IndexError or ValueError."""
        if depth > _DEEPEST:
            raise ValueError("locations nest too deep")
        word = words[at]
        if word == "loc":
            place, at = self._one(words, at + 2, depth + 1)
            return place, at + 1
        if word.startswith("#"):
            return self.place(self.aliases.get(word, "unknown"), depth + 1), at + 1
        if word == "callsite":
            return self._call(words, at + 2, depth + 1)
        if word == "fused":
            return self._fused(words, at + 1, depth + 1)
        if word.startswith('"'):
            return self._quoted(words, at, depth)
        return NOWHERE, at + 1

    def _call(self, words: list[str], at: int, depth: int) -> tuple[Place, int]:
        callee, at = self._one(words, at, depth)
        caller, at = self._one(words, at + 1, depth)  # behind "at"
        names, frames = callee.names + caller.names, callee.frames + caller.frames
        if len(names) + len(frames) > 2 * _DEEPEST:  # calls of calls could double again and again
            raise ValueError("too many call sites")
        return Place(names, frames), at + 1

    def _fused(self, words: list[str], at: int, depth: int) -> tuple[Place, int]:
        at += words[at].startswith("<")
        parts = []
        while words[at] in ("[", ","):
            part, at = self._one(words, at + 1, depth)
            parts.append(part)
        return next((p for p in parts if p.frames), NOWHERE), at + 1

    def _quoted(self, words: list[str], at: int, depth: int) -> tuple[Place, int]:
        text = words[at][1:-1]
        follows = words[at + 1] if at + 1 < len(words) else ""
        if follows == ":":
            frame = Frame(PurePosixPath(text).name, int(words[at + 2]), int(words[at + 4]))
            return Place((), (frame,)), at + 5
        if follows == "(":
            inner, at = self._one(words, at + 2, depth + 1)
            return Place((text, *inner.names), inner.frames), at + 1
        return Place((text,), ()), at + 1
