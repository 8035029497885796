"""Labels of the readable view -> the ops they stand for, and the places that an edit names by them.

A label stands for the op that its line is of. A line that opens a block (a loop, a branch, a role) stands for the op
with all inside of it; `else:` and the roles have no op, only a place inside. Labels are those of the view that was
given: what an edit put elsewhere is found where it is now.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pgo_agent.sandbox.ttgir.edits.errors import BadEdit
from pgo_agent.sandbox.ttgir.edits.grammar import Anchor, Spans
from pgo_agent.sandbox.ttgir.edits.mutable_tree import MutableBlock, MutableOperation
from pgo_agent.sandbox.ttgir.edits.script import Edit
from pgo_agent.sandbox.ttgir.pseudocode.view import Readable


@dataclass(frozen=True)
class Spot:
    """Between two ops of a block: before or behind one of them, or at its beginning where there is none."""

    room: MutableBlock
    beside: MutableOperation | None
    behind: bool

    def at(self) -> int:
        """Return the index in the block, as it is now."""
        return self.room.operations.index(self.beside) + self.behind if self.beside is not None else 0


class Lines:
    """The lines of a view beside the ops of the tree that is edited."""

    def __init__(self, view: Readable, operations: list[MutableOperation], aliases: Mapping[str, str]) -> None:
        self.lines, self.operations, self.aliases = view.lines, operations, aliases
        self.at = {line.label: i for i, line in enumerate(view.lines)}
        self.labels = {operations[p]: line.label for line in view.lines for p in line.places}
        self.owned = {operation for i in range(len(view.lines)) if (operation := self.own(i))}
        self.homes = {
            operation: operation.room for operation in operations if operation.room is not None
        }  # blocks that they were read in
        self.last = {
            operation: p + sum(1 for _ in operation.walk()) - 1 for p, operation in enumerate(operations)
        }  # inside of it, by place

    def index(self, edit: Edit, label: str) -> int:
        if label in self.at:
            return self.at[label]
        last = dict[str, str]()
        for line in self.lines:
            last[line.label[0]] = line.label
        raise BadEdit(
            edit, f"there is no line {label}; the labels are {', '.join(f'{k}1..{v}' for k, v in last.items())}"
        )

    def own(self, i: int) -> MutableOperation | None:
        """Return the op that a line is of; None for `else:` and roles."""
        line = self.lines[i]
        operation = self.operations[line.places[0]] if line.places else None
        return None if operation is None or (operation.ends and self._opens(i)) else operation

    def operations_of(self, i: int) -> list[MutableOperation]:
        """Return all ops that a line stands for, in the order of the text."""
        return [self.operations[p] for p in sorted(self.lines[i].places)]

    def name(self, operation: MutableOperation) -> str:
        """Return how a message names an op: by the line that shows it, if one does."""
        label = next((self.labels[c] for c in operation.around() if c in self.labels), "")
        if not label or operation.inserted:
            return f"the inserted {operation.name}" if operation.inserted else operation.name
        return f"{label} ({operation.name})" if operation in self.owned else f"{operation.name} of {label}"

    def chosen(self, edit: Edit, spans: Spans) -> list[int]:
        """Return the lines of ranges. Raises BadEdit for one that begins outside of a loop and ends inside of it."""
        selected = dict[int, None]()
        for first, last in spans:
            begin, end = self.index(edit, first), self.index(edit, last)
            listed = range(begin, end + 1)
            for i in listed:
                inside = self.inside(i)
                if begin < end and inside and i < end < inside[-1]:
                    label, until = self.lines[i].label, self.lines[inside[-1]].label
                    raise BadEdit(edit, f"the range ends inside of {label}, which goes on to {until}; end it there")
            selected |= dict.fromkeys(listed)
        return sorted(selected)

    def outermost(self, edit: Edit, chosen: list[int]) -> list[MutableOperation]:
        """Return the ops of lines, without those that stand in another of them. Raises BadEdit where a line has
        none."""
        owns = [(i, self.present(edit, i)) for i in chosen]
        all_ = {operation for _, operation in owns if operation is not None}
        for i, operation in owns:
            if operation is None and not any(j < i and self.own(j) and i in self.inside(j) for j in chosen):
                raise BadEdit(edit, f"{self.lines[i].label} stands for no op; name the lines inside of it")
        return [c for _, c in owns if c is not None and not any(a in all_ for a in list(c.around())[1:])]

    def present(self, edit: Edit, i: int) -> MutableOperation | None:
        """Return a line's op. Raises BadEdit when an edit took it away."""
        operation = self.own(i)
        lost = next((c for c in operation.around() if c.gone), None) if operation is not None else None
        if lost is not None:
            raise BadEdit(
                edit, f"{self.lines[i].label} is already taken away by edit {lost.edit}; leave one of them out"
            )
        return operation

    # places -----------------------------------------------------------------------------------------------------------

    def spot(self, edit: Edit, place: Anchor) -> Spot:
        """Return where an edit puts something. Raises BadEdit for a place that does not exist."""
        i = self.index(edit, place.label)
        operation = self.present(edit, i)
        inner = self.inside(i)
        if place.where in ("start", "end"):
            return self._within(edit, i, place.where)
        if operation is None or operation.name == "tt.func":
            if place.where == "after" and inner:
                return self._within(edit, i, "start")
            raise BadEdit(edit, f"nothing can stand {place.where} {place.label}; {self._instead(i)}")
        if place.where == "after" and inner:
            raise BadEdit(edit, f"{place.label} opens a block, so 'after {place.label}' is unclear; {self._instead(i)}")
        if operation.room is None:
            raise BadEdit(edit, f"nothing can stand {place.where} {place.label}")
        behind = place.where != "before"
        if behind and operation.ends:
            raise BadEdit(edit, f"{place.label} ends its block, nothing can follow it; write 'before {place.label}'")
        return Spot(operation.room, operation, behind)

    def _instead(self, i: int) -> str:
        """Return what to write where `before` or `after` a line means nothing, or two things."""
        label, inner = self.lines[i].label, self.inside(i)
        if not inner:
            return "name another line"
        operation = self.own(i)
        past = (
            f", or 'past {label}' for behind its end" if operation is not None and operation.name != "tt.func" else ""
        )
        return f"write 'at start of {label}' for before {self.lines[inner[0]].label}{past}"

    def inside(self, i: int) -> range:
        """Return the lines inside of a line, those of its `else:` too."""
        operation, end = self.own(i), i
        first = self.lines[i].places[0] if operation is not None else 0
        for j in range(i + 1, len(self.lines)):
            line = self.lines[j]
            if operation is None and line.depth <= self.lines[i].depth:
                break
            if operation is None or (line.places and first < line.places[0] <= self.last[operation]):
                end = j
        return range(i + 1, end + 1)

    def _opens(self, i: int) -> bool:
        return i + 1 < len(self.lines) and self.lines[i + 1].depth > self.lines[i].depth

    def _within(self, edit: Edit, i: int, where: str) -> Spot:
        """At the start or the end of the block that a line opens: before what ends it."""
        direct = list[MutableOperation]()
        for line in self.lines[i + 1 :]:
            if line.depth <= self.lines[i].depth:
                break
            direct += [self.operations[p] for p in line.places[:1] if line.depth == self.lines[i].depth + 1]
        if not direct:
            raise BadEdit(edit, f"no line stands inside of {self.lines[i].label}; name another line")
        room = self.homes[direct[0 if where == "start" else -1]]
        lost = next((c for c in room.owner.around() if c.gone), None)
        if lost is not None:
            raise BadEdit(
                edit, f"{self.lines[i].label} is already taken away by edit {lost.edit}; leave one of them out"
            )
        last = room.operations[-1] if room.operations and where == "end" else None
        return Spot(room, last, last is not None and not last.ends)
