"""Where ops come from: names and lines of the user's source, by the locations of a text
(`sandbox/ttgir/locations.py`)."""

from collections.abc import Sequence
from dataclasses import dataclass

from pgo_agent.sandbox.ttgir.locations import Frame, Locations
from pgo_agent.sandbox.ttgir.token_lists import closing, joined, locations
from pgo_agent.sandbox.ttgir.tokens import Token, Unreadable, tokens
from pgo_agent.sandbox.ttgir.tree import Module, Op


@dataclass(frozen=True)
class StatementLocation:
    """A place in a source file, and the variable that its statement assigns to, where it does."""

    file: str
    line: int
    name: str


@dataclass(frozen=True)
class Source:
    """The locations of a module. `file`: the one that its kernel stands in; empty without locations."""

    locations: Locations
    file: str

    def place(self, op: Op) -> StatementLocation | None:
        """Return the place in the kernel's own file that an op comes from; None where the text does not say."""
        frames = self.locations.frames(op.location)
        return next((StatementLocation(f.file, f.line, _variable(f)) for f in frames if f.file == self.file), None)

    def name(self, location: str) -> str:
        """Return the variable that a location names; empty where it names none."""
        return next(map(_variable, self.locations.frames(location)), "")


def of(module: Module) -> Source:
    """Return the locations of a module."""
    frames = module.locations.frames(module.kernel.location)
    return Source(module.locations, frames[0].file if frames else "")


def _variable(frame: Frame) -> str:
    """Return the outermost name around a frame that is one of Python; tools may write others."""
    return next((name for name in frame.names if name.isidentifier()), "")


def parameters(function: Op, source: Source) -> list[str]:
    """Return what the source calls a function's arguments; empty names where the text does not say."""
    listed = [t for t in tokens(str(function.parts[0])) if t.kind != "space"]
    inside, spans = _signature(listed)
    names = {a.name: i for i, a in enumerate(function.defined)}
    result, at = [""] * len(function.defined), None
    for i, token in enumerate(inside):
        if i in spans and at is not None:
            result[at] = source.name(joined(inside[i + 2 : spans[i]]))
        at = names.get(token.text, at) if token.kind == "value" else at
    return result


def _signature(listed: Sequence[Token]) -> tuple[Sequence[Token], dict[int, int]]:
    """Return a function's words behind its bracket, and where locations begin and end in them; none in a broken
    text."""
    opened = next((i for i, t in enumerate(listed) if t.text == "("), len(listed))
    try:
        inside = listed[opened : closing(listed, opened)] if opened < len(listed) else []
        return inside, dict(locations(inside))
    except Unreadable:
        return [], {}
