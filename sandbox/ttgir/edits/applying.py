"""Edits applied to a TTGIR text: `apply(module, view, edits)` gives the new text, or raises BadEdit naming the edit.

All labels are those of the view that is given, whatever the edits before moved; edits are made in order. What no edit
touches stays byte for byte. Afterwards every op must still mean the values that it meant, each given before it. Nothing
is said of memory: a read that is moved before the write that it needs is for the gate to refuse.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pgo_agent.sandbox.ttgir import reader, types
from pgo_agent.sandbox.ttgir.edits import attributes, company, inserting, scopes, working
from pgo_agent.sandbox.ttgir.edits.faults import BadEdit
from pgo_agent.sandbox.ttgir.edits.places import Lines, Spot
from pgo_agent.sandbox.ttgir.edits.script import Delete, Edit, Insert, Move, Replace, SetAttribute
from pgo_agent.sandbox.ttgir.edits.working import Cell
from pgo_agent.sandbox.ttgir.pseudocode.view import Readable
from pgo_agent.sandbox.ttgir.tokens import Unreadable
from pgo_agent.sandbox.ttgir.tree import Module


@dataclass(frozen=True)
class Edited:
    """A new text, and which op stands on which of its lines."""

    text: str
    edits: Sequence[Edit]
    ops: dict[int, Cell]
    lines: Lines

    def edit(self, number: int) -> Edit | None:
        return next((e for e in self.edits if e.number == number), None)

    def at(self, line: int) -> Cell | None:
        """The op that begins on a line, or the last before it."""
        return self.ops.get(max((at for at in self.ops if at <= line), default=0))


def apply(module: Module, view: Readable, edits: Iterable[Edit]) -> str:
    """The module's text after all edits, numbered from 1 as `script.parse` does. Raises BadEdit."""
    return edited(module, view, edits).text


def edited(module: Module, view: Readable, edits: Iterable[Edit]) -> Edited:
    """As `apply`, with what stands where."""
    cells = working.build(module)
    if any(cells[p].op is not op for line in view.lines for p, op in zip(line.places, line.ops, strict=True)):
        raise ValueError("the view is of another module")
    return _Applying(module, Lines(view, cells, module.aliases), list(edits)).all()


class _Applying:
    def __init__(self, module: Module, lines: Lines, edits: list[Edit]) -> None:
        self.module, self.lines, self.edits, self.root = module, lines, edits, lines.cells[0]

    def all(self) -> Edited:
        for edit in self.edits:
            self._one(edit)
        scopes.link(self.root)
        fault = scopes.parted(self.root) or next(scopes.faults(self.root, self.lines), None)
        before = self.module.before.count("\n") + 1
        text = f"{self.module.before}{working.text(self.root)}{self.module.after}"
        found = Edited(text, self.edits, working.lines(self.root, before), self.lines)
        if fault is not None:
            raise BadEdit(found.edit(fault[0]), fault[1])
        self._read(found)
        return found

    def _read(self, found: Edited) -> None:
        """What was put together must be what the reader understands."""
        try:
            reader.parse(found.text)
        except Unreadable as e:
            cell = found.at(e.line)
            raise BadEdit(found.edit(cell.blame() if cell is not None else 0), str(e)) from None

    def _one(self, edit: Edit) -> None:
        if isinstance(edit, Move):
            self._move(edit)
        elif isinstance(edit, SetAttribute):
            self._set(edit)
        elif isinstance(edit, Delete):
            self._remove(self._take(edit, self.lines.chosen(edit, edit.spans), frozenset()))
        elif isinstance(edit, Insert):
            self._insert(edit)
        elif isinstance(edit, Replace):
            self._replace(edit)

    # moves ------------------------------------------------------------------------------------------------------------

    def _move(self, edit: Move) -> None:
        spot = self.lines.spot(edit, edit.place)
        chosen = self.lines.chosen(edit, edit.spans)
        own = self.lines.outermost(edit, chosen)
        for cell in own:
            self._movable(edit, cell, spot)
        going = company.travelling(self.lines, chosen, own)
        moved = [cell for cell in going if cell in own or cell.name != "arith.constant"]
        for cell in moved:
            working.take(cell)
        at = spot.at()
        for i, cell in enumerate(moved):
            working.put(cell, spot.room, at + i, edit.number)
        company.bring(self.lines, moved, edit.number)
        company.follow(self.lines, moved, [v for c in moved for v in c.results], edit.number)

    def _movable(self, edit: Edit, cell: Cell, spot: Spot) -> None:
        name = self.lines.name(cell)
        if cell.room is None or cell.name == "tt.func":
            raise BadEdit(edit, f"{name} is the function itself and cannot be moved")
        if cell.ends:
            raise BadEdit(edit, f"{name} ends its block and cannot be moved; replace it to hand over other values")
        if cell.edit:
            raise BadEdit(edit, f"{name} is already moved by edit {cell.edit}; say in one edit where it goes")
        if spot.beside is cell:
            raise BadEdit(edit, f"{name} cannot be moved beside itself; name a line that is not moved")
        if cell in spot.room.owner.around():
            raise BadEdit(edit, f"{name} cannot be moved into itself; name a line outside of it")

    # attributes -------------------------------------------------------------------------------------------------------

    def _set(self, edit: SetAttribute) -> None:
        cell = self._op(edit)
        name = attributes.named(cell, edit.name)
        if not name:
            raise BadEdit(edit, self._unknown(edit, cell))
        if name in cell.given:
            raise BadEdit(edit, f"edit {cell.given[name]} sets {name} of {edit.label} already; leave one of them out")
        try:
            attributes.change(cell, name, edit.value)
        except attributes.Unchanged as e:
            raise BadEdit(edit, str(e)) from None
        cell.given[name] = edit.number

    def _op(self, edit: SetAttribute) -> Cell:
        """The op that an edit names: the line's own, or one that is written into the line."""
        i = self.lines.index(edit, edit.label)
        own = self.lines.present(edit, i)
        told = [c for c in self.lines.told(i) if not any(a.gone for a in c.around())]
        found = [c for c in told if edit.op.lower() in (c.name, c.name.rpartition(".")[2])]
        if own is not None and (not edit.op or own in found):
            return own
        if not edit.op or not told:
            raise BadEdit(edit, f"{edit.label} stands for no op; name a line that does")
        if len(found) != 1:
            there = ", ".join(dict.fromkeys(c.name for c in told))
            raise BadEdit(edit, f"{edit.label} has {len(found) or 'no'} {edit.op}; it has {there}")
        return found[0]

    def _unknown(self, edit: SetAttribute, cell: Cell) -> str:
        told = self.lines.told(self.lines.index(edit, edit.label))
        other = next((c for c in told if c is not cell and attributes.named(c, edit.name) in attributes.names(c)), None)
        if other is not None:
            return f"{cell.name} has no {edit.name}; write: set {edit.label} {other.name} {edit.name} = {edit.value}"
        there = ", ".join(attributes.names(cell)) or "nothing that can be set"
        hint = f"a new one needs its dialect: tt.{edit.name}"
        return f"{cell.name} of {edit.label} has no {edit.name}; it has {there}; {hint}"

    # deletions, insertions --------------------------------------------------------------------------------------------

    def _take(self, edit: Edit, chosen: list[int], but: frozenset[str]) -> list[Cell]:
        """Marks the ops of lines, with what goes along, as taken away; gives them. `but`: what stays."""
        own = self.lines.outermost(edit, chosen)
        for cell in own:
            if cell.name == "tt.func" or (cell.ends and not isinstance(edit, Replace)):
                raise BadEdit(edit, f"{self.lines.name(cell)} cannot be taken away; it is a function or ends a block")
            touched = next((c for c in cell.walk() if c.edit or c.given), None)
            if touched is not None:
                by = max(touched.edit, *touched.given.values(), 0)
                raise BadEdit(
                    edit, f"{self.lines.name(touched)} is already changed by edit {by}; leave one of them out"
                )
        going = company.travelling(self.lines, chosen, own, but)
        for cell in going:
            cell.edit, cell.gone = edit.number, True
        return going

    def _remove(self, going: list[Cell]) -> None:
        for cell in going:
            working.take(cell)

    def _insert(self, edit: Insert) -> None:
        spot = self.lines.spot(edit, edit.place)
        made = inserting.cells(edit, edit.block, self.lines)
        self._put(edit, made, spot)

    def _put(self, edit: Edit, made: list[Cell], spot: Spot) -> None:
        for cell in made[: len(made) - isinstance(edit, Replace)]:
            if cell.ends:
                raise BadEdit(edit, f"{cell.name} ends a block and cannot stand in the middle of one; leave it out")
        at = spot.at()
        for i, cell in enumerate(made):
            working.put(cell, spot.room, at + i, edit.number)
        scopes.link(self.root)

    def _replace(self, edit: Replace) -> None:
        chosen = self.lines.chosen(edit, edit.spans)
        own = self.lines.outermost(edit, chosen)
        last, room = own[-1], own[-1].room
        if room is None or any(cell.room is not room for cell in own):
            raise BadEdit(edit, "its lines stand in several blocks; replace the lines of one block in one edit")
        going = self._take(edit, chosen, self._needed(edit))
        made = inserting.cells(edit, edit.block, self.lines, self._names(going))
        self._same_end(edit, going, made)
        self._put(edit, made, Spot(room, last, True))
        self._remove(going)
        self._hand_over(edit, going, made)

    def _needed(self, edit: Replace) -> frozenset[str]:
        """Names that a block uses and does not give."""
        block = inserting.read(edit, edit.block)
        used = {working.key(w)[0] for op in block for inner in op.walk() for w in inner.operands}
        return frozenset(used - {working.key(w)[0] for op in block for w in op.results})

    def _names(self, going: list[Cell]) -> frozenset[str]:
        """Names that ops give, and those inside of them."""
        inside = [inner for cell in going for inner in cell.walk()]
        values = [v for cell in inside for given in (cell.results, *(r.arguments for r in cell.rooms)) for v in given]
        return frozenset(v.name for v in values)

    def _same_end(self, edit: Edit, going: list[Cell], made: list[Cell]) -> None:
        """What ends a block must be replaced by what ends it the same way."""
        old = next((c for c in going if c.ends), None)
        new = made[-1] if made[-1].ends else None
        if old is not None and (new is None or (new.name, len(new.written)) != (old.name, len(old.written))):
            raise BadEdit(edit, f"its block must end with {old.name} of {len(old.written)} values, as what it replaces")
        if old is None and new is not None:
            raise BadEdit(edit, f"{new.name} ends a block and cannot stand in the middle of one; leave it out")

    def _hand_over(self, edit: Edit, going: list[Cell], made: list[Cell]) -> None:
        """Who used an old result uses the new one of its name; pure ops in between that do so go behind it."""
        new = {(v.name, v.index): v for cell in made for v in cell.results}
        for old in [v for cell in going for v in cell.results]:
            value = new.get((old.name, old.index))
            if value is None:
                continue
            if old.uses and _differ(old.type, value.type):
                raise BadEdit(edit, f"it gives {value.name} as {value.type}, what it replaces as {old.type}")
            for user in old.uses:
                user.operands = [value if operand is old else operand for operand in user.operands]
            value.uses += old.uses
            old.uses = []
        company.follow(self.lines, made, list(new.values()), edit.number)


def _differ(one: str, other: str) -> bool:
    """Whether two types surely differ; layouts may be written in several ways."""
    a, b = types.shaped(one), types.shaped(other)
    if a is None or b is None:
        return bool(one and other) and one != other
    return (a.kind, a.shape, a.element) != (b.kind, b.shape, b.element)
