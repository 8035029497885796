"""Normalised TTGIR: the same program gives the same text, whatever its values, layouts and source lines are called.

Values and layout aliases are numbered in the order in which they appear, locations go, an op stands on a line. The
order of ops, attributes and arguments stays: texts that differ here may still do the same.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest

from pgo_agent.sandbox.ttgir.token_lists import closing, joined, locations, outside
from pgo_agent.sandbox.ttgir.tokens import Token, Unreadable, tokens
from pgo_agent.sandbox.ttgir.tree import Argument, Block, Module, Op, Region


def text(module: Module) -> str:
    """Return the module's normal form: definitions of the layouts it uses, then an op to a line."""
    names = _Names(module.aliases)
    body = "\n".join(names.op(module.op, {}, 0))
    return "".join(f"{line}\n" for line in [*names.definitions(), body])


def digest(module: Module) -> str:
    """Return the SHA-256 of the normal form, in hex."""
    return hashlib.sha256(text(module).encode()).hexdigest()


def arguments(function: Op) -> str:
    """Return a function's arguments with their types and attributes, whatever they are called."""
    names = _Names({})
    new_names = {a.name: f"%{i}" for i, a in enumerate(function.defined)}
    listed = [t for t in tokens(names.words(str(function.parts[0]), new_names)) if t.kind != "space"]
    opened = next(i for i, t in enumerate(listed) if t.text == "(")
    return joined(listed[opened : closing(listed, opened) + 1])


@dataclass
class _Names:
    aliases: Mapping[str, str]
    values: int = 0
    layouts: dict[str, str] = field(default_factory=dict)  # alias -> its name here, in the order of first use

    def op(self, op: Op, scope: dict[str, str], depth: int) -> Iterator[str]:
        """Yield the lines of an op. Adds its results to `scope`."""
        results = {base: self._fresh() for base in dict.fromkeys(r.partition("#")[0] for r in op.results)}
        scope |= results
        new_names = scope | self._arguments(op.defined) if op.defined else scope
        line, partition = "  " * depth, dict[str, str]()
        for part, following in zip_longest(op.parts, op.parts[1:]):
            if isinstance(part, Region):
                yield line
                yield from self._region(part, partition if _isolated(part) else dict(new_names), depth)
                line = "  " * depth
            else:
                entering = following if isinstance(following, Region) and _isolated(following) else None
                partition = self._arguments(entering.blocks[0].arguments if entering else ())
                line += self.words(part, new_names | partition if partition else new_names)
        yield line

    def _region(self, region: Region, scope: dict[str, str], depth: int) -> Iterator[str]:
        for block in region.blocks:
            yield from self._block(block, scope, depth)

    def _block(self, block: Block, scope: dict[str, str], depth: int) -> Iterator[str]:
        if block.head:
            scope |= self._arguments(block.arguments)
            yield "  " * depth + self.words(block.head, scope)
        for op in block.ops:
            yield from self.op(op, scope, depth + 1)

    def _arguments(self, arguments: tuple[Argument, ...]) -> dict[str, str]:
        return {a.name: self._fresh() for a in arguments}

    def _fresh(self) -> str:
        self.values += 1
        return f"%{self.values - 1}"

    def words(self, part: str, new_names: Mapping[str, str]) -> str:
        """Return the words of a piece of text, one space apart where there was any, under their new names."""
        listed = [t for t in tokens(part) if t.kind != "space"]
        try:
            spans = locations(listed)
        except Unreadable:
            spans = []  # its bracket closes behind a region: no location that MLIR would read
        return joined([self._renamed(t, new_names) for t in outside(listed, spans)])

    def _renamed(self, token: Token, new_names: Mapping[str, str]) -> Token:
        if token.kind == "value":
            base, _, which = token.text.partition("#")
            return token._replace(text=new_names.get(base, base) + (f"#{which}" if which else ""))
        if token.kind == "alias" and token.text in self.aliases:
            name = self.layouts.setdefault(token.text, f"#{len(self.layouts)}")
            return token._replace(text=name)
        return token

    def definitions(self) -> Iterator[str]:
        """Yield what the used layouts stand for; one may use others, which are then defined behind it."""
        done = 0
        while done < len(self.layouts):
            alias = list(self.layouts)[done]
            yield f"{self.layouts[alias]} = {self.words(self.aliases[alias], {})}"
            done += 1


def _isolated(region: Region) -> bool:
    """A partition of ttg.warp_specialize sees no value of the outside: its names may be used there again."""
    return region.name.startswith("partition")
