"""What goes with an op that is moved or taken away: the pure ops that the view writes into its line.

- A pure op of the line goes along where it stands in the same block and only ops that go use it: an address, a view.
  (A constant stays where it is when its line is moved.)
- One that is used elsewhere, too, stays. Where the moved op needs it and it would stand behind the new place, it is put
  in front of it: it only comes earlier, before all other uses.
- One that the ops in place of its line use and do not give stays, too.
- A pure op without a line that uses a moved or replaced result and would stand before it is put behind it.

Ops with a line of their own never go along: the edit that needs that is refused (`dominance.py`).
"""

from pgo_agent.sandbox.ttgir.edits import mutable_tree
from pgo_agent.sandbox.ttgir.edits.mutable_tree import MutableOperation, Value
from pgo_agent.sandbox.ttgir.edits.places import Lines
from pgo_agent.sandbox.ttgir.pseudocode import kinds


def travelling(
    lines: Lines, chosen: list[int], chosen_ops: list[MutableOperation], but: frozenset[str] = frozenset()
) -> list[MutableOperation]:
    """Return the ops that go when `chosen_ops` goes, in the order of the text. `but`: names of values whose ops
    stay."""
    rooms = {operation.room for operation in chosen_ops}
    candidates = [
        c for i in chosen for c in lines.operations_of(i) if c.room in rooms and folded(lines, c) and not c.gone
    ]
    candidates = [c for c in candidates if not any(v.name in but for v in c.results)]
    going = dict.fromkeys(chosen_ops)
    inside = {inner for operation in going for inner in operation.walk()}
    growing = True
    while growing:
        more = [c for c in candidates if c not in inside and _used(c) and all(u in inside for u in _used(c))]
        going |= dict.fromkeys(more)
        inside |= set(more)
        growing = bool(more)
    return ordered(list(going))


def folded(lines: Lines, operation: MutableOperation) -> bool:
    """Return whether an op is pure and has no line of its own."""
    return not operation.inserted and kinds.pure(operation.op) and operation not in lines.owned


def ordered(operations: list[MutableOperation]) -> list[MutableOperation]:
    """Return ops in the order in which they stand."""
    chosen, root = set(operations), list(operations[0].around())[-1]
    return [operation for operation in root.walk() if operation in chosen]


def _used(operation: MutableOperation) -> list[MutableOperation]:
    return [user for value in operation.results for user in value.uses if not any(c.gone for c in user.around())]


def bring(lines: Lines, moved: list[MutableOperation], edit: int) -> None:
    """Put in front of moved ops the pure ops that they need and that would stand behind them."""
    for operation in moved:
        for inner in list(operation.walk()):
            for value in inner.operands:
                _bring(lines, value, operation, edit)


def _bring(lines: Lines, value: Value | None, before: MutableOperation, edit: int) -> None:
    holder = value.holder if value is not None else None
    room = before.room
    if not isinstance(holder, MutableOperation) or room is None or not folded(lines, holder):
        return
    standing = next((c for c in holder.around() if c.room is room), before)  # it, or what it stands in, of that block
    if standing is before or room.operations.index(standing) < room.operations.index(before):
        return
    mutable_tree.take(holder)
    mutable_tree.put(holder, room, room.operations.index(before), edit)
    for needed in holder.operands:
        _bring(lines, needed, holder, edit)


def follow(lines: Lines, moved: list[MutableOperation], values: list[Value], edit: int) -> None:
    """Put behind moved ops the pure ops that use their results and would stand before them."""
    for value in values:
        for user in list(dict.fromkeys(value.uses)):
            room, last = moved[-1].room, moved[-1]
            if room is None or user.room is not room or user in moved or not folded(lines, user):
                continue
            if room.operations.index(user) < room.operations.index(last):
                mutable_tree.take(user)
                mutable_tree.put(user, room, room.operations.index(last) + 1, edit)
                follow(lines, [*moved, user], user.results, edit)
