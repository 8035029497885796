"""A tree of TTGIR to be edited: ops that can be taken out and put elsewhere, and that know which values they use.

Made of a `Module`, whose text it gives back byte for byte as long as nothing was changed. A value stays itself wherever
its op goes, so a use that would mean another value of the same name is found (`scopes.py`). It decides nothing.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from pgo_agent.sandbox.ttgir.pseudocode import kinds
from pgo_agent.sandbox.ttgir.tokens import tokens
from pgo_agent.sandbox.ttgir.tree import Argument, Block, Module, Op, Region

ENDS = kinds.TERMINATORS | {"cf.br", "cf.cond_br", "cf.switch", "ub.unreachable", "llvm.unreachable"}
STEP = "  "  # what MLIR indents by


@dataclass(eq=False)
class Value:
    name: str  # with its %, without #1
    index: int  # among the results of that name
    type: str
    holder: "Cell | Room | None"  # the op or the block that gives it; None where the text does not say
    uses: list["Cell"] = field(default_factory=list)  # once for each operand
    read: str = ""  # its name in the text that was read, where that was another

    @property
    def said(self) -> str:
        several = isinstance(self.holder, Cell) and sum(v.name == self.name for v in self.holder.results) > 1
        return f"{self.name}#{self.index}" if several else self.name


@dataclass(eq=False)
class Room:
    """A block in its place."""

    head: str
    owner: "Cell"
    region: list["Room"]
    isolated: bool  # its region sees nothing of the outside
    arguments: list[Value] = field(default_factory=list)
    cells: list["Cell"] = field(default_factory=list)

    @property
    def indent(self) -> str:
        """White space at the beginning of its lines."""
        return _indent(self.cells[0]) if self.cells else _indent(self.owner) + STEP


@dataclass(eq=False)
class Cell:
    """An op in its place."""

    op: Op  # as it was read
    parts: list[str | list[Room]]
    room: Room | None  # None for the module, and for what was taken out
    written: list[str]  # operands as the text has them
    operands: list[Value | None] = field(default_factory=list)  # None: of an inserted op, until `scopes.link` knows
    results: list[Value] = field(default_factory=list)
    edit: int = 0  # that put it here or took it away; 0 where it stands as read
    gone: bool = False
    inserted: bool = False
    given: dict[str, int] = field(default_factory=dict)  # attribute -> the edit that gave it a value

    @property
    def name(self) -> str:
        return self.op.name

    @property
    def rooms(self) -> list[Room]:
        return [room for part in self.parts if not isinstance(part, str) for room in part]

    @property
    def ends(self) -> bool:
        """Whether it ends its block."""
        return self.name in ENDS

    def walk(self) -> Iterator["Cell"]:
        yield self
        for room in self.rooms:
            for cell in room.cells:
                yield from cell.walk()

    def around(self) -> Iterator["Cell"]:
        """Itself and the ops that it stands in, from the inside to the outside."""
        cell: Cell | None = self
        while cell is not None:
            yield cell
            cell = cell.room.owner if cell.room is not None else None

    def blame(self) -> int:
        """The last edit that touched it, or what it stands in; 0 for none."""
        return max(max(c.edit, *c.given.values(), 0) for c in self.around())


Scope = dict[tuple[str, int], Value]


def key(written: str) -> tuple[str, int]:
    """%x#1 -> (%x, 1)."""
    name, _, which = written.partition("#")
    return name, int(which or 0)


def build(module: Module) -> list[Cell]:
    """All ops in the order of `Module.walk`, the module's first."""
    return list(cell(module.op, None, {}).walk())


def cell(op: Op, room: Room | None, scope: Scope | None) -> Cell:
    """An op with all inside of it. Adds its results to `scope`; without one no operand is resolved."""
    made = Cell(op, [], room, list(op.operands), inserted=scope is None)
    for written in op.operands:
        value = None if scope is None else scope.get(key(written)) or Value(*key(written), "", None)
        made.operands.append(value)
        if value is not None:
            value.uses.append(made)
    count = 0
    for part in op.parts:
        made.parts.append(part if isinstance(part, str) else _rooms(made, part, count, scope))
        count += isinstance(part, Region)
    types = [*op.result_types, *[""] * len(op.results)]
    made.results = [Value(*key(name), types[i], made) for i, name in enumerate(op.results)]
    if scope is not None:
        scope.update({(v.name, v.index): v for v in made.results})
    return made


def _rooms(owner: Cell, region: Region, number: int, scope: Scope | None) -> list[Room]:
    isolated = region.name.startswith("partition") or owner.name in ("module", "tt.func")
    inner = None if scope is None else {} if isolated else dict(scope)
    made = list[Room]()
    for block in region.blocks:
        made.append(Room(block.head, owner, made, isolated))
        first = number == 0 and len(made) == 1
        _fill(made[-1], block, block.arguments or (owner.op.defined if first else ()), inner)
    return made


def _fill(room: Room, block: Block, listed: tuple[Argument, ...], scope: Scope | None) -> None:
    room.arguments = [Value(a.name, 0, a.type, room) for a in listed]
    if scope is not None:
        scope.update({(v.name, 0): v for v in room.arguments})
    room.cells = [cell(op, room, scope) for op in block.ops]


# text -----------------------------------------------------------------------------------------------------------------


def text(cell: Cell) -> str:
    return "".join(p if isinstance(p, str) else "".join(map(_room_text, p)) for p in cell.parts)


def _room_text(room: Room) -> str:
    return room.head + "".join(map(text, room.cells))


def lines(cell: Cell, first: int) -> dict[int, Cell]:
    """Which op begins on a line of the text, which begins with the line `first`."""
    found: dict[int, Cell] = {}
    _count(cell, first, found)
    return found


def _count(cell: Cell, at: int, found: dict[int, Cell]) -> int:
    """Adds the lines of an op that begins with the line `at`; gives the line it ends with."""
    opening = str(cell.parts[0])
    found[at + _leading(opening).count("\n")] = cell
    for part in cell.parts:
        if isinstance(part, str):
            at += part.count("\n")
            continue
        for room in part:
            at += room.head.count("\n")
            for inner in room.cells:
                at = _count(inner, at, found)
    return at


def _leading(opening: str) -> str:
    """White space and comments before the first word."""
    space = re.match(r"(?:\s+|//[^\n]*)*", opening)
    return space[0] if space else ""


def _indent(cell: Cell) -> str:
    return _leading(str(cell.parts[0])).rpartition("\n")[2]


# changes --------------------------------------------------------------------------------------------------------------


def take(cell: Cell) -> None:
    """Takes an op out of its block."""
    if cell.room is not None:
        cell.room.cells.remove(cell)
    cell.room = None


def put(cell: Cell, room: Room, at: int, edit: int) -> None:
    """Puts an op that was taken out into a block, on a line of its own, indented as the others."""
    indent = _indent(cell)
    if not _leading(str(cell.parts[0])).startswith("\n"):
        cell.parts[0] = f"\n{indent}{str(cell.parts[0]).lstrip()}"
    _shift(cell, f"\n{indent}", f"\n{room.indent}")
    cell.room, cell.edit = room, edit
    room.cells.insert(at, cell)


def _shift(cell: Cell, old: str, new: str) -> None:
    cell.parts = [p.replace(old, new) if isinstance(p, str) else p for p in cell.parts]
    for room in cell.rooms:
        room.head = room.head.replace(old, new)
        for inner in room.cells:
            _shift(inner, old, new)


def rename(holder: Cell, old: str, new: str) -> None:
    """Gives the results of an op another name, wherever they are used."""
    values = [v for v in holder.results if v.name == old]
    users = dict.fromkeys(user for v in values for user in v.uses)
    for cell in (holder, *users):
        cell.parts[0] = renamed(str(cell.parts[0]), {old: new})
    for value in values:
        value.name, value.read = new, value.read or old
    for user in users:
        pairs = zip(user.written, user.operands, strict=True)
        user.written = [w.replace(old, new, 1) if v in values else w for w, v in pairs]


def renamed(text: str, names: dict[str, str]) -> str:
    """A text with values under other names."""
    if not any(name in text for name in names):
        return text
    return "".join(
        names.get(name, name) + sign + which if t.kind == "value" else t.text
        for t in tokens(text)
        for name, sign, which in [t.text.partition("#")]
    )
