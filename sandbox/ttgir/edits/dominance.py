"""Which values an op sees, and whether each op of an edited tree still means the values that it meant: SSA dominance.

As in MLIR's text: a region sees what stands before it outside, a function and a partition of ttg.warp_specialize only
their arguments. Of several blocks in a region only the first is known to come before the others, so a use across them
may stay as it was read and no new one may be made. Types are left to Triton's verifier (`verify.py`).
"""

from collections.abc import Iterator
from itertools import count

from pgo_agent.sandbox.ttgir.edits import mutable_tree
from pgo_agent.sandbox.ttgir.edits.mutable_tree import MutableBlock, MutableOperation, Scope, Value, key
from pgo_agent.sandbox.ttgir.edits.places import Lines
from pgo_agent.sandbox.ttgir.tokens import tokens

Fault = tuple[int, str]  # the edit that is to blame, and what is wrong


def visits(operation: MutableOperation, scope: Scope) -> Iterator[tuple[MutableOperation | MutableBlock, Scope]]:
    """Yield every op and block with the values that it sees, before it gives its own."""
    yield operation, scope
    for part in operation.parts:
        if not isinstance(part, str) and part:
            inner: Scope = {} if part[0].isolated else dict(scope)
            for room in part:
                yield room, inner
                inner |= {(v.name, 0): v for v in room.arguments}
                for inside in room.operations:
                    yield from visits(inside, inner)
    scope |= {(v.name, v.index): v for v in operation.results}


def link(root: MutableOperation) -> None:
    """Find the values that inserted ops name, as far as they are there by now."""
    for operation, scope in visits(root, {}):
        if isinstance(operation, MutableOperation) and None in operation.operands:
            for i, written in enumerate(operation.written):
                value = scope.get(key(written))
                if operation.operands[i] is None and value is not None:
                    operation.operands[i] = value
                    value.uses.append(operation)


def fresh(root: MutableOperation, name: str, text: str = "") -> str:
    """Return a name like another that is neither in the tree nor in a text."""
    taken = {t.text.partition("#")[0] for t in tokens(f"{mutable_tree.text(root)}\n{text}") if t.kind == "value"}
    stem = name if not name[1:].isdigit() else f"%v{name[1:]}"
    return next(free for i in count(1) if (free := f"{stem}_{i}") not in taken)


def parted(root: MutableOperation) -> Fault | None:
    """Rename what was moved to where its name is taken. A fault where it is a block's argument that is in the way."""
    while (clash := _clash(root)) is not None:
        holder = max((v.holder for v in clash if isinstance(v.holder, MutableOperation)), key=_edited, default=None)
        twice = all(isinstance(v.holder, MutableOperation) and v.holder.inserted for v in clash)
        if holder is None or not _edited(holder) or twice:
            blame = max(_edited(v.holder) for v in clash)
            return blame, f"the name {clash[0].name} is given twice there; write the ops anew under other names"
        mutable_tree.rename(holder, clash[0].name, fresh(root, clash[0].name))
    return None


def _edited(holder: MutableOperation | MutableBlock | None) -> int:
    operation = holder.owner if isinstance(holder, MutableBlock) else holder
    return operation.blame() if operation is not None else 0


def _clash(root: MutableOperation) -> tuple[Value, Value] | None:
    """Two values of one name, the one given where the other is seen."""
    for at, scope in visits(root, {}):
        for value in at.arguments if isinstance(at, MutableBlock) else at.results:
            other = scope.get((value.name, 0))
            if other is not None and other.holder is not at:
                return other, value
    return None


def faults(root: MutableOperation, lines: Lines) -> Iterator[Fault]:
    """Yield what is wrong with an edited tree. What was so as it was read is no fault of an edit."""
    for at, scope in visits(root, {}):
        if not isinstance(at, MutableOperation):
            continue
        for written, operand in zip(at.written, at.operands, strict=True):
            message = _wrong(at, written, operand, scope.get(key(written)), lines)
            blame = max(at.blame(), _edited(operand.holder) if operand is not None else 0)
            if message and blame:
                yield blame, f"{lines.name(at)} {message}"
        for message, blame in _ends(at):
            if blame:
                yield blame, f"{lines.name(at)} {message}"


def _wrong(at: MutableOperation, written: str, meant: Value | None, visible: Value | None, lines: Lines) -> str:
    """Return why an op may not use a value; empty where it may."""
    if (
        visible is not None
        and visible is meant
        and (_before(at, visible) or not (at.blame() or _edited(visible.holder)))
    ):
        return ""
    written = written.replace(meant.name, meant.read, 1) if meant is not None and meant.read else written
    operation = _giver(meant) if meant is not None else _named(lines, key(written)[0])
    if operation is None:
        return f"uses {written}, which nothing gives; name values as the excerpt of a line shows them"
    of = "" if operation.inserted else f" of {lines.name(operation)}"
    if any(c.gone for c in operation.around()):
        return f"still uses {written}{of}, which is taken away; change what uses it, too, or give {written} anew"
    home = operation.room if meant is None or isinstance(meant.holder, MutableOperation) else meant.holder
    where = "which comes later" if home in _seen(at) else "which stands in a block that it does not see"
    return f"uses {written}{of}, {where}; put it behind what gives it"


def _seen(at: MutableOperation) -> Iterator[MutableBlock | None]:
    """Yield the blocks that an op stands in, as far out as it sees."""
    for operation in at.around():
        yield operation.room
        if operation.room is None or operation.room.isolated:
            return


def _giver(value: Value) -> MutableOperation | None:
    return value.holder.owner if isinstance(value.holder, MutableBlock) else value.holder


def _named(lines: Lines, name: str) -> MutableOperation | None:
    """Return an op that gives values of a name, wherever it stands."""
    for operation in lines.operations[0].walk():
        arguments = [v for room in operation.rooms for v in room.arguments]
        if any(v.name == name for v in (*operation.results, *arguments)):
            return operation
    return None


def _before(at: MutableOperation, value: Value) -> bool:
    """Return whether what gives a value that an op sees comes before it: not in another block, but the first, of a
    region."""
    room = value.holder.room if isinstance(value.holder, MutableOperation) else value.holder
    return room is None or room is room.region[0] or any(c.room is room for c in at.around())


def _ends(at: MutableOperation) -> Iterator[tuple[str, int]]:
    """Yield what is wrong with the ends of an op's blocks, and the edit that touched them last."""
    for number, room in enumerate(at.rooms):
        touched = max([at.blame(), *(c.edit for c in room.operations)])
        if any(c.ends for c in room.operations[:-1]):
            yield "has an op behind one that ends its block", touched
        name, needed = _hands_over(at, number)
        end = room.operations[-1] if room.operations else None
        count = len(end.written) if end is not None and end.name == name else 0
        if needed and count != needed:
            yield f"needs {name} with {needed} values at the end of its block, not {count}", touched


def _hands_over(at: MutableOperation, number: int) -> tuple[str, int]:
    """Return what ends a block of an op and how many values that takes, as far as it is known; 0 where none need be
    said."""
    if at.name in ("scf.for", "scf.if"):
        return "scf.yield", len(at.results)
    if at.name == "scf.while":
        return ("scf.yield", len(at.written)) if number else ("scf.condition", 1 + len(at.results))
    return "", 0
