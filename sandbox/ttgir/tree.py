"""The tree of a TTGIR text: modules, regions, blocks and ops. `str` of any of them is exactly what was read.

An op keeps its text in `parts`, with its regions between them; what `reader` understood of it stands beside that. Trees
are values: an edit makes a new op of other parts and reads the text again.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from pgo_agent.sandbox.ttgir.locations import Locations

_INTEGER = re.compile(r"-?[0-9]{1,20}")  # what 64 bits hold


@dataclass(frozen=True)
class Argument:
    """A value that a block begins with: of a function, a loop, a partition."""

    name: str  # with its %
    type: str  # empty where the text does not say it


@dataclass(frozen=True)
class Op:
    """One operation."""

    parts: tuple["str | Region", ...]  # white space before it belongs to the first
    name: str  # tt.load, scf.for, module
    line: int  # of its first word, from 1
    results: tuple[str, ...]  # %x, or %x#0 and %x#1 where there are several
    operands: tuple[str, ...]  # values used, in the order of the text; not those of its regions
    defined: tuple[Argument, ...]  # what its first region's block begins with: loop variable, function arguments
    words: tuple[str, ...]  # bare words and literals among the operands: slt, x, 1, "text"
    attributes: Mapping[str, str]  # name -> text of the value; empty for a unit attribute
    operand_types: tuple[str, ...]  # as written; for some ops the text leaves some out
    result_types: tuple[str, ...]
    location: str  # what its loc(...) says; empty without one

    def __str__(self) -> str:
        return _text(self)

    @cached_property
    def regions(self) -> tuple["Region", ...]:
        return tuple(p for p in self.parts if isinstance(p, Region))

    def integer(self, name: str) -> int | None:
        """Return an integer or boolean attribute; None when it is absent or something else."""
        word = self.attributes.get(name, "").split(" ")[0]
        if word in ("true", "false"):
            return int(word == "true")
        return int(word) if _INTEGER.fullmatch(word) else None

    def walk(self) -> Iterator["Op"]:
        """Yield this op and all ops inside of it, in the order of the text."""
        yield self
        for region in self.regions:
            for block in region.blocks:
                for op in block.ops:
                    yield from op.walk()


@dataclass(frozen=True)
class Block:
    head: str  # "^bb0(%a: f32):" with the white space before it; empty for an unnamed entry
    arguments: tuple[Argument, ...]
    ops: tuple[Op, ...]

    def __str__(self) -> str:
        return _text(self)


@dataclass(frozen=True)
class Region:
    name: str  # default, partition0, else, do: the word that opens it; empty for most ops' first
    opening: str  # all words that open it: partition0(%a: i32) num_warps(4)
    blocks: tuple[Block, ...]

    def __str__(self) -> str:
        return _text(self)

    @property
    def ops(self) -> Iterator[Op]:
        return (op for block in self.blocks for op in block.ops)


def _text(root: Op | Block | Region) -> str:
    """Return all that was read of a part of the tree, without a call for each level of it."""
    pending: list[Op | Block | Region | str] = [root]
    pieces: list[str] = []
    while pending:
        at = pending.pop()
        if isinstance(at, str):
            pieces.append(at)
        elif isinstance(at, Op):
            pending += reversed(at.parts)
        elif isinstance(at, Region):
            pending += reversed(at.blocks)
        else:
            pending += [*reversed(at.ops), at.head]
    return "".join(pieces)


@dataclass(frozen=True)
class Module:
    """A whole text: definitions of aliases around one module op."""

    before: str
    op: Op
    after: str
    aliases: Mapping[str, str]  # #blocked -> #ttg.blocked<{...}>, #loc1 -> loc(...)

    def __str__(self) -> str:
        return f"{self.before}{self.op}{self.after}"

    def walk(self) -> Iterator[Op]:
        return self.op.walk()

    @cached_property
    def locations(self) -> Locations:
        """Reads what ops say in `Op.location`."""
        return Locations(self.aliases)

    @property
    def functions(self) -> tuple[Op, ...]:
        return tuple(op for region in self.op.regions for op in region.ops if op.name == "tt.func")

    @property
    def kernel(self) -> Op:
        """The public function: what a launch runs. `reader.parse` saw to it that there is one."""
        return next(f for f in self.functions if "public" in f.words)

    @property
    def name(self) -> str:
        """The kernel's symbol, with its @; empty where the text gives it none."""
        return next((w for w in self.kernel.words if w.startswith("@")), "")
