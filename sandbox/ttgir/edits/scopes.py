"""Which values an op sees, and whether each op of an edited tree still means the values that it meant: SSA dominance.

As in MLIR's text: a region sees what stands before it outside, a function and a partition of ttg.warp_specialize only
their arguments. Of several blocks in a region only the first is known to come before the others, so a use across them
may stay as it was read and no new one may be made. Types are left to Triton's verifier (`checked.py`).
"""

from collections.abc import Iterator
from itertools import count

from pgo_agent.sandbox.ttgir.edits import working
from pgo_agent.sandbox.ttgir.edits.places import Lines
from pgo_agent.sandbox.ttgir.edits.working import Cell, Room, Scope, Value, key
from pgo_agent.sandbox.ttgir.tokens import tokens

Fault = tuple[int, str]  # the edit that is to blame, and what is wrong


def visits(cell: Cell, scope: Scope) -> Iterator[tuple[Cell | Room, Scope]]:
    """Every op and block with the values that it sees, before it gives its own."""
    yield cell, scope
    for part in cell.parts:
        if not isinstance(part, str) and part:
            inner: Scope = {} if part[0].isolated else dict(scope)
            for room in part:
                yield room, inner
                inner |= {(v.name, 0): v for v in room.arguments}
                for inside in room.cells:
                    yield from visits(inside, inner)
    scope |= {(v.name, v.index): v for v in cell.results}


def link(root: Cell) -> None:
    """Finds the values that inserted ops name, as far as they are there by now."""
    for cell, scope in visits(root, {}):
        if isinstance(cell, Cell) and None in cell.operands:
            for i, written in enumerate(cell.written):
                value = scope.get(key(written))
                if cell.operands[i] is None and value is not None:
                    cell.operands[i] = value
                    value.uses.append(cell)


def fresh(root: Cell, name: str, text: str = "") -> str:
    """A name like another that is neither in the tree nor in a text."""
    taken = {t.text.partition("#")[0] for t in tokens(f"{working.text(root)}\n{text}") if t.kind == "value"}
    stem = name if not name[1:].isdigit() else f"%v{name[1:]}"
    return next(free for i in count(1) if (free := f"{stem}_{i}") not in taken)


def parted(root: Cell) -> Fault | None:
    """Renames what was moved to where its name is taken. A fault where it is a block's argument that is in the way."""
    while (found := _clash(root)) is not None:
        holder = max((v.holder for v in found if isinstance(v.holder, Cell)), key=_edited, default=None)
        twice = all(isinstance(v.holder, Cell) and v.holder.inserted for v in found)
        if holder is None or not _edited(holder) or twice:
            blame = max(_edited(v.holder) for v in found)
            return blame, f"the name {found[0].name} is given twice there; write the ops anew under other names"
        working.rename(holder, found[0].name, fresh(root, found[0].name))
    return None


def _edited(holder: Cell | Room | None) -> int:
    cell = holder.owner if isinstance(holder, Room) else holder
    return cell.blame() if cell is not None else 0


def _clash(root: Cell) -> tuple[Value, Value] | None:
    """Two values of one name, the one given where the other is seen."""
    for at, scope in visits(root, {}):
        for value in at.arguments if isinstance(at, Room) else at.results:
            other = scope.get((value.name, 0))
            if other is not None and other.holder is not at:
                return other, value
    return None


def faults(root: Cell, lines: Lines) -> Iterator[Fault]:
    """What is wrong with an edited tree. What was so as it was read is no fault of an edit."""
    for at, scope in visits(root, {}):
        if not isinstance(at, Cell):
            continue
        for written, operand in zip(at.written, at.operands, strict=True):
            said = _wrong(at, written, operand, scope.get(key(written)), lines)
            blame = max(at.blame(), _edited(operand.holder) if operand is not None else 0)
            if said and blame:
                yield blame, f"{lines.name(at)} {said}"
        for said, blame in _ends(at):
            if blame:
                yield blame, f"{lines.name(at)} {said}"


def _wrong(at: Cell, written: str, meant: Value | None, found: Value | None, lines: Lines) -> str:
    """Why an op may not use a value; empty where it may."""
    if found is not None and found is meant and (_before(at, found) or not (at.blame() or _edited(found.holder))):
        return ""
    written = written.replace(meant.name, meant.read, 1) if meant is not None and meant.read else written
    cell = _giver(meant) if meant is not None else _named(lines, key(written)[0])
    if cell is None:
        return f"uses {written}, which nothing gives; name values as the excerpt of a line shows them"
    of = "" if cell.inserted else f" of {lines.name(cell)}"
    if any(c.gone for c in cell.around()):
        return f"still uses {written}{of}, which is taken away; change what uses it, too, or give {written} anew"
    home = cell.room if meant is None or isinstance(meant.holder, Cell) else meant.holder
    where = "which comes later" if home in _seen(at) else "which stands in a block that it does not see"
    return f"uses {written}{of}, {where}; put it behind what gives it"


def _seen(at: Cell) -> Iterator[Room | None]:
    """The blocks that an op stands in, as far out as it sees."""
    for cell in at.around():
        yield cell.room
        if cell.room is None or cell.room.isolated:
            return


def _giver(value: Value) -> Cell | None:
    return value.holder.owner if isinstance(value.holder, Room) else value.holder


def _named(lines: Lines, name: str) -> Cell | None:
    """An op that gives values of a name, wherever it stands."""
    for cell in lines.cells[0].walk():
        arguments = [v for room in cell.rooms for v in room.arguments]
        if any(v.name == name for v in (*cell.results, *arguments)):
            return cell
    return None


def _before(at: Cell, value: Value) -> bool:
    """Whether what gives a value that an op sees comes before it: not in another block, but the first, of a region."""
    room = value.holder.room if isinstance(value.holder, Cell) else value.holder
    return room is None or room is room.region[0] or any(c.room is room for c in at.around())


def _ends(at: Cell) -> Iterator[tuple[str, int]]:
    """What is wrong with the ends of an op's blocks, and the edit that touched them last."""
    for number, room in enumerate(at.rooms):
        touched = max([at.blame(), *(c.edit for c in room.cells)])
        if any(c.ends for c in room.cells[:-1]):
            yield "has an op behind one that ends its block", touched
        name, wanted = _hands_over(at, number)
        end = room.cells[-1] if room.cells else None
        given = len(end.written) if end is not None and end.name == name else 0
        if wanted and given != wanted:
            yield f"needs {name} with {wanted} values at the end of its block, not {given}", touched


def _hands_over(at: Cell, number: int) -> tuple[str, int]:
    """What ends a block of an op and how many values that takes, as far as it is known; 0 where none need be said."""
    if at.name in ("scf.for", "scf.if"):
        return "scf.yield", len(at.results)
    if at.name == "scf.while":
        return ("scf.yield", len(at.written)) if number else ("scf.condition", 1 + len(at.results))
    return "", 0
