"""Edits applied to a TTGIR text: `apply(module, view, edits)` gives the new text, or raises BadEdit naming the edit.

All labels are those of the given view, whatever earlier edits moved; edits are made in order. What no edit touches
stays byte for byte. Afterwards every op must still use the values that it used, each defined before it. Memory is not
checked: the gate refuses a read that is moved before the write that it needs.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pgo_agent.sandbox.ttgir import reader, types
from pgo_agent.sandbox.ttgir.edits import attributes, dependents, dominance, insert, mutable_tree
from pgo_agent.sandbox.ttgir.edits.errors import BadEdit
from pgo_agent.sandbox.ttgir.edits.mutable_tree import MutableOperation
from pgo_agent.sandbox.ttgir.edits.places import Lines, Spot
from pgo_agent.sandbox.ttgir.edits.script import Delete, Edit, Insert, Move, Replace, SetAttribute
from pgo_agent.sandbox.ttgir.pseudocode.view import Readable
from pgo_agent.sandbox.ttgir.tokens import Unreadable
from pgo_agent.sandbox.ttgir.tree import Module


@dataclass(frozen=True)
class Edited:
    """A new text, and which op stands on which of its lines."""

    text: str
    edits: Sequence[Edit]
    ops: dict[int, MutableOperation]
    lines: Lines

    def edit(self, number: int) -> Edit | None:
        return next((e for e in self.edits if e.number == number), None)

    def at(self, line: int) -> MutableOperation | None:
        """Return the op that begins on a line, or the last before it."""
        return self.ops.get(max((at for at in self.ops if at <= line), default=0))


def apply(module: Module, view: Readable, edits: Iterable[Edit]) -> str:
    """Return the module's text after all edits, numbered from 1 as `script.parse` does. Raises BadEdit."""
    return edited(module, view, edits).text


def edited(module: Module, view: Readable, edits: Iterable[Edit]) -> Edited:
    """Do what `apply` does; return what stands where, too."""
    operations = mutable_tree.build(module)
    if any(operations[p].op is not op for line in view.lines for p, op in zip(line.places, line.ops, strict=True)):
        raise ValueError("the view is of another module")
    return _Applying(module, Lines(view, operations, module.aliases), list(edits)).all()


class _Applying:
    def __init__(self, module: Module, lines: Lines, edits: list[Edit]) -> None:
        self.module, self.lines, self.edits, self.root = module, lines, edits, lines.operations[0]

    def all(self) -> Edited:
        for edit in self.edits:
            self._one(edit)
        dominance.link(self.root)
        fault = dominance.parted(self.root) or next(dominance.faults(self.root, self.lines), None)
        before = self.module.before.count("\n") + 1
        text = f"{self.module.before}{mutable_tree.text(self.root)}{self.module.after}"
        edited = Edited(text, self.edits, mutable_tree.lines(self.root, before), self.lines)
        if fault is not None:
            raise BadEdit(edited.edit(fault[0]), fault[1])
        self._read(edited)
        return edited

    def _read(self, edited: Edited) -> None:
        """What was put together must be what the reader understands."""
        try:
            reader.parse(edited.text)
        except Unreadable as e:
            operation = edited.at(e.line)
            raise BadEdit(edited.edit(operation.blame() if operation is not None else 0), str(e)) from None

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
        outermost = self.lines.outermost(edit, chosen)
        for operation in outermost:
            self._movable(edit, operation, spot)
        going = dependents.travelling(self.lines, chosen, outermost)
        moved = [operation for operation in going if operation in outermost or operation.name != "arith.constant"]
        for operation in moved:
            mutable_tree.take(operation)
        at = spot.at()
        for i, operation in enumerate(moved):
            mutable_tree.put(operation, spot.room, at + i, edit.number)
        dependents.bring(self.lines, moved, edit.number)
        dependents.follow(self.lines, moved, [v for c in moved for v in c.results], edit.number)

    def _movable(self, edit: Edit, operation: MutableOperation, spot: Spot) -> None:
        name = self.lines.name(operation)
        if operation.room is None or operation.name == "tt.func":
            raise BadEdit(edit, f"{name} is the function itself and cannot be moved")
        if operation.ends:
            raise BadEdit(edit, f"{name} ends its block and cannot be moved; replace it to hand over other values")
        if operation.edit:
            raise BadEdit(edit, f"{name} is already moved by edit {operation.edit}; say in one edit where it goes")
        if spot.beside is operation:
            raise BadEdit(edit, f"{name} cannot be moved beside itself; name a line that is not moved")
        if operation in spot.room.owner.around():
            raise BadEdit(edit, f"{name} cannot be moved into itself; name a line outside of it")

    # attributes -------------------------------------------------------------------------------------------------------

    def _set(self, edit: SetAttribute) -> None:
        operation = self._op(edit)
        name = attributes.named(operation, edit.name)
        if not name:
            raise BadEdit(edit, self._unknown(edit, operation))
        if name in operation.set_by:
            raise BadEdit(
                edit, f"edit {operation.set_by[name]} sets {name} of {edit.label} already; leave one of them out"
            )
        try:
            attributes.change(operation, name, edit.value)
        except attributes.Unchanged as e:
            raise BadEdit(edit, str(e)) from None
        operation.set_by[name] = edit.number

    def _op(self, edit: SetAttribute) -> MutableOperation:
        """Return the op that an edit names: the line's own, or one that is written into the line."""
        i = self.lines.index(edit, edit.label)
        line_op = self.lines.present(edit, i)
        operations = [c for c in self.lines.operations_of(i) if not any(a.gone for a in c.around())]
        matching = [c for c in operations if edit.op.lower() in (c.name, c.name.rpartition(".")[2])]
        if line_op is not None and (not edit.op or line_op in matching):
            return line_op
        if not edit.op or not operations:
            raise BadEdit(edit, f"{edit.label} stands for no op; name a line that does")
        if len(matching) != 1:
            names = ", ".join(dict.fromkeys(c.name for c in operations))
            raise BadEdit(edit, f"{edit.label} has {len(matching) or 'no'} {edit.op}; it has {names}")
        return matching[0]

    def _unknown(self, edit: SetAttribute, operation: MutableOperation) -> str:
        operations = self.lines.operations_of(self.lines.index(edit, edit.label))
        other = next(
            (c for c in operations if c is not operation and attributes.named(c, edit.name) in attributes.names(c)),
            None,
        )
        if other is not None:
            return (
                f"{operation.name} has no {edit.name}; write: set {edit.label} {other.name} {edit.name} = {edit.value}"
            )
        names = ", ".join(attributes.names(operation)) or "nothing that can be set"
        hint = f"a new one needs its dialect: tt.{edit.name}"
        return f"{operation.name} of {edit.label} has no {edit.name}; it has {names}; {hint}"

    # deletions, insertions --------------------------------------------------------------------------------------------

    def _take(self, edit: Edit, chosen: list[int], but: frozenset[str]) -> list[MutableOperation]:
        """Mark the ops of lines, with what goes along, as taken away; return them. `but`: what stays."""
        outermost = self.lines.outermost(edit, chosen)
        for operation in outermost:
            if operation.name == "tt.func" or (operation.ends and not isinstance(edit, Replace)):
                raise BadEdit(
                    edit, f"{self.lines.name(operation)} cannot be taken away; it is a function or ends a block"
                )
            touched = next((c for c in operation.walk() if c.edit or c.set_by), None)
            if touched is not None:
                by = max(touched.edit, *touched.set_by.values(), 0)
                raise BadEdit(
                    edit, f"{self.lines.name(touched)} is already changed by edit {by}; leave one of them out"
                )
        going = dependents.travelling(self.lines, chosen, outermost, but)
        for operation in going:
            operation.edit, operation.gone = edit.number, True
        return going

    def _remove(self, going: list[MutableOperation]) -> None:
        for operation in going:
            mutable_tree.take(operation)

    def _insert(self, edit: Insert) -> None:
        spot = self.lines.spot(edit, edit.place)
        inserted = insert.operations(edit, edit.block, self.lines)
        self._put(edit, inserted, spot)

    def _put(self, edit: Edit, inserted: list[MutableOperation], spot: Spot) -> None:
        for operation in inserted[: len(inserted) - isinstance(edit, Replace)]:
            if operation.ends:
                raise BadEdit(
                    edit, f"{operation.name} ends a block and cannot stand in the middle of one; leave it out"
                )
        at = spot.at()
        for i, operation in enumerate(inserted):
            mutable_tree.put(operation, spot.room, at + i, edit.number)
        dominance.link(self.root)

    def _replace(self, edit: Replace) -> None:
        chosen = self.lines.chosen(edit, edit.spans)
        outermost = self.lines.outermost(edit, chosen)
        last, room = outermost[-1], outermost[-1].room
        if room is None or any(operation.room is not room for operation in outermost):
            raise BadEdit(edit, "its lines stand in several blocks; replace the lines of one block in one edit")
        going = self._take(edit, chosen, self._needed(edit))
        inserted = insert.operations(edit, edit.block, self.lines, self._names(going))
        self._same_end(edit, going, inserted)
        self._put(edit, inserted, Spot(room, last, True))
        self._remove(going)
        self._hand_over(edit, going, inserted)

    def _needed(self, edit: Replace) -> frozenset[str]:
        """Names that a block uses and does not give."""
        block = insert.read(edit, edit.block)
        used = {mutable_tree.key(w)[0] for op in block for inner in op.walk() for w in inner.operands}
        return frozenset(used - {mutable_tree.key(w)[0] for op in block for w in op.results})

    def _names(self, going: list[MutableOperation]) -> frozenset[str]:
        """Names that ops give, and those inside of them."""
        inside = [inner for operation in going for inner in operation.walk()]
        values = [
            v
            for operation in inside
            for results in (operation.results, *(r.arguments for r in operation.rooms))
            for v in results
        ]
        return frozenset(v.name for v in values)

    def _same_end(self, edit: Edit, going: list[MutableOperation], inserted: list[MutableOperation]) -> None:
        """What ends a block must be replaced by what ends it the same way."""
        old = next((c for c in going if c.ends), None)
        new = inserted[-1] if inserted[-1].ends else None
        if old is not None and (new is None or (new.name, len(new.written)) != (old.name, len(old.written))):
            raise BadEdit(edit, f"its block must end with {old.name} of {len(old.written)} values, as what it replaces")
        if old is None and new is not None:
            raise BadEdit(edit, f"{new.name} ends a block and cannot stand in the middle of one; leave it out")

    def _hand_over(self, edit: Edit, going: list[MutableOperation], inserted: list[MutableOperation]) -> None:
        """Who used an old result uses the new one of its name; pure ops in between that do so go behind it."""
        new = {(v.name, v.index): v for operation in inserted for v in operation.results}
        for old in [v for operation in going for v in operation.results]:
            value = new.get((old.name, old.index))
            if value is None:
                continue
            if old.uses and _differ(old.type, value.type):
                raise BadEdit(edit, f"it gives {value.name} as {value.type}, what it replaces as {old.type}")
            for user in old.uses:
                user.operands = [value if operand is old else operand for operand in user.operands]
            value.uses += old.uses
            old.uses = []
        dependents.follow(self.lines, inserted, list(new.values()), edit.number)


def _differ(one: str, other: str) -> bool:
    """Return whether two types surely differ; layouts may be written in several ways."""
    a, b = types.shaped(one), types.shaped(other)
    if a is None or b is None:
        return bool(one and other) and one != other
    return (a.kind, a.shape, a.element) != (b.kind, b.shape, b.element)
