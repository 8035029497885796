"""A tree of TTGIR to be edited: ops that can be taken out and put elsewhere, and that know which values they use.

Made of a `Module`, whose text it gives back byte for byte as long as nothing was changed. A value stays itself wherever
its op goes, so a use that would mean another value of the same name is found (`dominance.py`). It decides nothing.
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
    holder: (
        "MutableOperation | MutableBlock | None"  # the op or the block that gives it; None where the text does not say
    )
    uses: list["MutableOperation"] = field(default_factory=list)  # once for each operand
    read: str = ""  # its name in the text that was read, where that was another

    @property
    def reference(self) -> str:
        several = (
            isinstance(self.holder, MutableOperation) and sum(v.name == self.name for v in self.holder.results) > 1
        )
        return f"{self.name}#{self.index}" if several else self.name


@dataclass(eq=False)
class MutableBlock:
    """A block in its place."""

    head: str
    owner: "MutableOperation"
    region: list["MutableBlock"]
    isolated: bool  # its region sees nothing of the outside
    arguments: list[Value] = field(default_factory=list)
    operations: list["MutableOperation"] = field(default_factory=list)

    @property
    def indent(self) -> str:
        """White space at the beginning of its lines."""
        return _indent(self.operations[0]) if self.operations else _indent(self.owner) + STEP


@dataclass(eq=False)
class MutableOperation:
    """An op in its place."""

    op: Op  # as it was read
    parts: list[str | list[MutableBlock]]
    room: MutableBlock | None  # None for the module, and for what was taken out
    written: list[str]  # operands as the text has them
    operands: list[Value | None] = field(default_factory=list)  # None: of an inserted op, until `dominance.link` knows
    results: list[Value] = field(default_factory=list)
    edit: int = 0  # that put it here or took it away; 0 where it stands as read
    gone: bool = False
    inserted: bool = False
    set_by: dict[str, int] = field(default_factory=dict)  # attribute -> the edit that gave it a value

    @property
    def name(self) -> str:
        return self.op.name

    @property
    def rooms(self) -> list[MutableBlock]:
        return [room for part in self.parts if not isinstance(part, str) for room in part]

    @property
    def ends(self) -> bool:
        """Whether it ends its block."""
        return self.name in ENDS

    def walk(self) -> Iterator["MutableOperation"]:
        yield self
        for room in self.rooms:
            for operation in room.operations:
                yield from operation.walk()

    def around(self) -> Iterator["MutableOperation"]:
        """Yield itself and the ops that it stands in, from the inside to the outside."""
        operation: MutableOperation | None = self
        while operation is not None:
            yield operation
            operation = operation.room.owner if operation.room is not None else None

    def blame(self) -> int:
        """Return the last edit that touched it, or what it stands in; 0 for none."""
        return max(max(c.edit, *c.set_by.values(), 0) for c in self.around())


Scope = dict[tuple[str, int], Value]


def key(written: str) -> tuple[str, int]:
    """Return (%x, 1) for %x#1."""
    name, _, which = written.partition("#")
    return name, int(which or 0)


def build(module: Module) -> list[MutableOperation]:
    """Return all ops in the order of `Module.walk`, the module's first."""
    return list(operation(module.op, None, {}).walk())


def operation(op: Op, room: MutableBlock | None, scope: Scope | None) -> MutableOperation:
    """Return an op with all inside of it. Adds its results to `scope`; without one no operand is resolved."""
    result = MutableOperation(op, [], room, list(op.operands), inserted=scope is None)
    for written in op.operands:
        value = None if scope is None else scope.get(key(written)) or Value(*key(written), "", None)
        result.operands.append(value)
        if value is not None:
            value.uses.append(result)
    count = 0
    for part in op.parts:
        result.parts.append(part if isinstance(part, str) else _rooms(result, part, count, scope))
        count += isinstance(part, Region)
    types = [*op.result_types, *[""] * len(op.results)]
    result.results = [Value(*key(name), types[i], result) for i, name in enumerate(op.results)]
    if scope is not None:
        scope.update({(v.name, v.index): v for v in result.results})
    return result


def _rooms(owner: MutableOperation, region: Region, number: int, scope: Scope | None) -> list[MutableBlock]:
    isolated = region.name.startswith("partition") or owner.name in ("module", "tt.func")
    inner = None if scope is None else {} if isolated else dict(scope)
    blocks = list[MutableBlock]()
    for block in region.blocks:
        blocks.append(MutableBlock(block.head, owner, blocks, isolated))
        first = number == 0 and len(blocks) == 1
        _fill(blocks[-1], block, block.arguments or (owner.op.defined if first else ()), inner)
    return blocks


def _fill(room: MutableBlock, block: Block, listed: tuple[Argument, ...], scope: Scope | None) -> None:
    room.arguments = [Value(a.name, 0, a.type, room) for a in listed]
    if scope is not None:
        scope.update({(v.name, 0): v for v in room.arguments})
    room.operations = [operation(op, room, scope) for op in block.ops]


# text -----------------------------------------------------------------------------------------------------------------


def text(operation: MutableOperation) -> str:
    return "".join(p if isinstance(p, str) else "".join(map(_room_text, p)) for p in operation.parts)


def _room_text(room: MutableBlock) -> str:
    return room.head + "".join(map(text, room.operations))


def lines(operation: MutableOperation, first: int) -> dict[int, MutableOperation]:
    """Return which op begins on a line of the text, which begins with the line `first`."""
    by_line: dict[int, MutableOperation] = {}
    _count(operation, first, by_line)
    return by_line


def _count(operation: MutableOperation, at: int, by_line: dict[int, MutableOperation]) -> int:
    """Add the lines of an op that begins with the line `at`; return the line it ends with."""
    opening = str(operation.parts[0])
    by_line[at + _leading(opening).count("\n")] = operation
    for part in operation.parts:
        if isinstance(part, str):
            at += part.count("\n")
            continue
        for room in part:
            at += room.head.count("\n")
            for inner in room.operations:
                at = _count(inner, at, by_line)
    return at


def _leading(opening: str) -> str:
    """White space and comments before the first word."""
    space = re.match(r"(?:\s+|//[^\n]*)*", opening)
    return space[0] if space else ""


def _indent(operation: MutableOperation) -> str:
    return _leading(str(operation.parts[0])).rpartition("\n")[2]


# changes --------------------------------------------------------------------------------------------------------------


def take(operation: MutableOperation) -> None:
    """Take an op out of its block."""
    if operation.room is not None:
        operation.room.operations.remove(operation)
    operation.room = None


def put(operation: MutableOperation, room: MutableBlock, at: int, edit: int) -> None:
    """Put an op that was taken out into a block, on a line of its own, indented as the others."""
    indent = _indent(operation)
    if not _leading(str(operation.parts[0])).startswith("\n"):
        operation.parts[0] = f"\n{indent}{str(operation.parts[0]).lstrip()}"
    _shift(operation, f"\n{indent}", f"\n{room.indent}")
    operation.room, operation.edit = room, edit
    room.operations.insert(at, operation)


def _shift(operation: MutableOperation, old: str, new: str) -> None:
    operation.parts = [p.replace(old, new) if isinstance(p, str) else p for p in operation.parts]
    for room in operation.rooms:
        room.head = room.head.replace(old, new)
        for inner in room.operations:
            _shift(inner, old, new)


def rename(holder: MutableOperation, old: str, new: str) -> None:
    """Rename the results of an op, wherever they are used."""
    values = [v for v in holder.results if v.name == old]
    users = dict.fromkeys(user for v in values for user in v.uses)
    for operation in (holder, *users):
        operation.parts[0] = renamed(str(operation.parts[0]), {old: new})
    for value in values:
        value.name, value.read = new, value.read or old
    for user in users:
        pairs = zip(user.written, user.operands, strict=True)
        user.written = [w.replace(old, new, 1) if v in values else w for w, v in pairs]


def renamed(text: str, names: dict[str, str]) -> str:
    """Return a text with values under other names."""
    if not any(name in text for name in names):
        return text
    return "".join(
        names.get(name, name) + sign + which if t.kind == "value" else t.text
        for t in tokens(text)
        for name, sign, which in [t.text.partition("#")]
    )
