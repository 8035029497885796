"""The readable form of a kernel: lines with labels, and the text of them beside notes.

    found = readable(reader.parse(ttgir))
    print(found.text({"L31": "P50 1840 cycles"}))

`K + f(i)` is an address by K and i that would be long written out, `k[3]` a ring of three buffers, `k^T` its
transpose; `next a = b` renews what a loop carries, `may fly` is what a wait leaves unfinished.

A line knows the ops that it stands for, so that what is measured of an op can be put beside it. Labels number the
lines of a role: L of the kernel and the default role, A of partition 0, B of partition 1, ...
"""

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pgo_agent.sandbox.ttgir import normalize
from pgo_agent.sandbox.ttgir.pseudocode import folding, graph, naming, printer, source, variables
from pgo_agent.sandbox.ttgir.tree import Module, Op

WIDTH = 120  # columns
NOTE = 52  # columns of the widest column of notes
NARROWEST = 24  # columns of code that deep nesting leaves
_INDENT, _LABEL = 2, 6


@dataclass(frozen=True)
class Line:
    label: str  # L12, A3
    text: str  # acc += dot(p, v[read])
    comment: str  # 128x128x64, wgmma 64x128x16, async
    depth: int  # of nesting, for the indent
    loops: int  # that it stands in
    role: str  # default, partition0, ...; empty outside of warp specialization
    ops: tuple[Op, ...]  # that it stands for, the one that it is of first
    places: tuple[int, ...]  # where `Module.walk` has them, in the same order
    source: tuple[int, ...]  # lines of the kernel's file, ascending; empty for a text without locations


@dataclass(frozen=True)
class Readable:
    lines: tuple[Line, ...]

    def line(self, label: str) -> Line:
        """Return the line of a label. Raises KeyError when there is none."""
        for line in self.lines:
            if line.label == label:
                return line
        raise KeyError(label)

    def labels(self) -> dict[int, str]:
        """Return the label that shows what stands on a line of the TTGIR, by that line's number."""
        return {op.line: line.label for line in self.lines for op in line.ops}

    def text(self, notes: Mapping[str, str] | None = None) -> str:
        """Return all lines, at most 120 columns wide; `notes` by label stand in a column to the right.

        Raises KeyError for a note on a line that there is not.
        """
        notes = notes or {}
        for label in notes:
            self.line(label)
        column = min(NOTE, max(map(len, notes.values()), default=0))
        width = WIDTH - (column + 2 if column else 0)
        return "".join(f"{row}\n" for line in self.lines for row in _rows(line, notes.get(line.label, ""), width))


def readable(module: Module, located: Module | None = None) -> Readable:
    """Return a module as pseudo-code.

    `located`: the same program with source locations, to take names and lines from, for a text without. Raises
    ValueError when it is another program.
    """
    if located is not None and normalize.digest(located) != normalize.digest(module):
        raise ValueError("the text with locations is of another program")
    named = located or module
    where = source.of(named)
    origins = [where.place(op) for op in named.walk()]
    root = graph.build(module)
    folded = folding.fold(root)
    assigned = variables.assign(root, folded)
    parameters = [source.parameters(f, where) for f in named.functions]
    names = naming.choose(root, assigned, parameters, origins)
    drafts = printer.Printer(module.aliases, folded, assigned, names).module(root)
    return Readable(tuple(_line(d, label, origins) for d, label in zip(drafts, _labels(drafts), strict=True)))


def _line(draft: printer.Draft, label: str, origins: list[source.StatementLocation | None]) -> Line:
    places = tuple(n.place for n in draft.nodes)
    lines = {o.line for p in places if (o := origins[p])}
    ops = tuple(n.op for n in draft.nodes)
    content = (draft.text, draft.comment, draft.depth, draft.loops, draft.role)
    return Line(label, *content, ops, places, tuple(sorted(lines)))


def _labels(drafts: list[printer.Draft]) -> Iterator[str]:
    count: dict[str, int] = {}
    for draft in drafts:
        number = draft.role.removeprefix("partition")
        letter = f"{chr(ord('A') + int(number) % 11)}" if number.isdigit() else "L"
        count[letter] = count.get(letter, 0) + 1
        yield f"{letter}{count[letter]}"


def _rows(line: Line, note: str, width: int) -> Iterator[str]:
    """Yield the rows of a line: label and code, code that needs more room, and the note beside them."""
    indent = " " * min(_INDENT * line.depth, width - _LABEL - NARROWEST)
    room = width - _LABEL - len(indent)
    text = line.text + (f"  # {line.comment}" if line.comment else "")
    rows = [text] if len(text) <= room else _wrapped(line, room)
    beside = textwrap.wrap(note, NOTE) if note else []
    for i in range(max(len(rows), len(beside))):
        label = line.label if i == 0 else ""
        row = f"{label:<{_LABEL}}{indent}{rows[i] if i < len(rows) else ''}"
        yield (f"{row:<{width}}  {beside[i]}" if i < len(beside) else row).rstrip()


def _wrapped(line: Line, room: int) -> list[str]:
    code = textwrap.wrap(line.text, room, subsequent_indent="    ", break_on_hyphens=False)
    comment = textwrap.wrap(
        f"# {line.comment}" if line.comment else "",
        room,
        initial_indent="    ",
        subsequent_indent="    # ",
        break_on_hyphens=False,
    )
    return code + comment
