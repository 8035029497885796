"""What goes with an op that is moved or taken away: the pure ops that the view writes into its line.

- A pure op of the line goes along where it stands in the same block and only ops that go use it: an address, a view.
  (A constant stays where it is when its line is moved.)
- One that is used elsewhere, too, stays. Where the moved op needs it and it would stand behind the new place, it is put
  in front of it: it only comes earlier, before all other uses.
- One that the ops in place of its line use and do not give stays, too.
- A pure op without a line that uses a moved or replaced result and would stand before it is put behind it.

Ops with a line of their own never go along: the edit that needs that is refused (`scopes.py`).
"""

from pgo_agent.sandbox.ttgir.edits import working
from pgo_agent.sandbox.ttgir.edits.places import Lines
from pgo_agent.sandbox.ttgir.edits.working import Cell, Value
from pgo_agent.sandbox.ttgir.pseudocode import kinds


def travelling(lines: Lines, chosen: list[int], own: list[Cell], but: frozenset[str] = frozenset()) -> list[Cell]:
    """The ops that go when `own` goes, in the order of the text. `but`: names of values whose ops stay."""
    rooms = {cell.room for cell in own}
    told = [c for i in chosen for c in lines.told(i) if c.room in rooms and folded(lines, c) and not c.gone]
    told = [c for c in told if not any(v.name in but for v in c.results)]
    going = dict.fromkeys(own)
    inside = {inner for cell in going for inner in cell.walk()}
    growing = True
    while growing:
        more = [c for c in told if c not in inside and _used(c) and all(u in inside for u in _used(c))]
        going |= dict.fromkeys(more)
        inside |= set(more)
        growing = bool(more)
    return ordered(list(going))


def folded(lines: Lines, cell: Cell) -> bool:
    """Whether an op is pure and has no line of its own."""
    return not cell.inserted and kinds.pure(cell.op) and cell not in lines.owned


def ordered(cells: list[Cell]) -> list[Cell]:
    """Ops in the order in which they stand."""
    wanted, root = set(cells), list(cells[0].around())[-1]
    return [cell for cell in root.walk() if cell in wanted]


def _used(cell: Cell) -> list[Cell]:
    return [user for value in cell.results for user in value.uses if not any(c.gone for c in user.around())]


def bring(lines: Lines, moved: list[Cell], edit: int) -> None:
    """Puts in front of moved ops the pure ops that they need and that would stand behind them."""
    for cell in moved:
        for inner in list(cell.walk()):
            for value in inner.operands:
                _bring(lines, value, cell, edit)


def _bring(lines: Lines, value: Value | None, before: Cell, edit: int) -> None:
    holder = value.holder if value is not None else None
    room = before.room
    if not isinstance(holder, Cell) or room is None or not folded(lines, holder):
        return
    standing = next((c for c in holder.around() if c.room is room), before)  # it, or what it stands in, of that block
    if standing is before or room.cells.index(standing) < room.cells.index(before):
        return
    working.take(holder)
    working.put(holder, room, room.cells.index(before), edit)
    for needed in holder.operands:
        _bring(lines, needed, holder, edit)


def follow(lines: Lines, moved: list[Cell], values: list[Value], edit: int) -> None:
    """Puts behind moved ops the pure ops that use their results and would stand before them."""
    for value in values:
        for user in list(dict.fromkeys(value.uses)):
            room, last = moved[-1].room, moved[-1]
            if room is None or user.room is not room or user in moved or not folded(lines, user):
                continue
            if room.cells.index(user) < room.cells.index(last):
                working.take(user)
                working.put(user, room, room.cells.index(last) + 1, edit)
                follow(lines, [*moved, user], user.results, edit)
