"""Where ops come from: names and lines of the user's source, by the locations of a text.

After MLIR's location syntax: "file":line:column, "name"(location), callsite(callee at caller), fused[...]. Triton
gives the name of the variable that a statement assigns to all ops of that statement.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pgo_agent.sandbox.ttgir.tokens import Token, Unreadable, tokens
from pgo_agent.sandbox.ttgir.tree import Module, Op
from pgo_agent.sandbox.ttgir.words import closing, joined, locations

DEEPEST = 40  # locations inside of locations
_PLACE = re.compile(r'((?:"[A-Za-z_]\w*"\()*)"((?:[^"\\]|\\.)*)":(\d+):\d+')
_ALIAS = re.compile(r"#loc\w*")


@dataclass(frozen=True)
class Place:
    """A place in a source file, and the variable that its statement assigns to, where it does."""

    file: str
    line: int
    name: str


@dataclass
class Source:
    """The locations of a module. `file`: the one that its kernel stands in; empty without locations."""

    aliases: Mapping[str, str]
    file: str = ""
    known: dict[str, tuple[Place, ...]] = field(default_factory=dict)

    def places(self, location: str) -> tuple[Place, ...]:
        """The places that a location names, the innermost call first."""
        if location not in self.known:
            found = _PLACE.finditer(self._opened(location, DEEPEST))
            self.known[location] = tuple(Place(m[2], int(m[3]), m[1].split('"')[1] if m[1] else "") for m in found)
        return self.known[location]

    def _opened(self, text: str, left: int) -> str:
        """A location with its aliases written out."""
        if left == 0 or len(text) > 10_000:
            return ""
        return _ALIAS.sub(lambda m: self._opened(_inside(self.aliases.get(m[0], "")), left - 1), text)

    def place(self, op: Op) -> Place | None:
        """The place in the kernel's own file that an op comes from; None where the text does not say."""
        return next((p for p in self.places(op.location) if p.file == self.file), None)


def of(module: Module) -> Source:
    """The locations of a module."""
    found = Source({k: v for k, v in module.aliases.items() if k.startswith("#loc")})
    places = found.places(module.kernel.location)
    found.file = places[0].file if places else ""
    return found


def parameters(function: Op, source: Source) -> list[str]:
    """What the source calls a function's arguments; empty names where the text does not say."""
    listed = [t for t in tokens(str(function.parts[0])) if t.kind != "space"]
    inside, spans = _signature(listed)
    names = {a.name: i for i, a in enumerate(function.defined)}
    found, at = [""] * len(function.defined), None
    for i, token in enumerate(inside):
        if i in spans and at is not None:
            named = source.places(joined(inside[i + 2 : spans[i]]))
            found[at] = named[0].name if named else ""
        at = names.get(token.text, at) if token.kind == "value" else at
    return found


def _signature(listed: Sequence[Token]) -> tuple[Sequence[Token], dict[int, int]]:
    """A function's words behind its bracket, and where locations begin and end in them; none in a broken text."""
    opened = next((i for i, t in enumerate(listed) if t.text == "("), len(listed))
    try:
        inside = listed[opened : closing(listed, opened)] if opened < len(listed) else []
        return inside, dict(locations(inside))
    except Unreadable:
        return [], {}


def _inside(definition: str) -> str:
    return definition.removeprefix("loc(").removesuffix(")")
