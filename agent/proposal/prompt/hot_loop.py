"""Finds the hot loop in the readable TTGIR of a kernel: per role, the innermost loop with most dots or most time.

The lines that define its operands are shown too, up to a limit; `...` stands for the rest. Labels are those of the
whole view, as edit scripts use them. This module selects lines and writes none.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby

from pgo_agent.sandbox.ttgir.edits import excerpts, mutable_tree
from pgo_agent.sandbox.ttgir.edits.mutable_tree import MutableOperation
from pgo_agent.sandbox.ttgir.pseudocode.view import Line, Readable
from pgo_agent.sandbox.ttgir.tree import Module

MOST = 90  # lines
MOST_TTGIR = 9000  # characters of an excerpt
WHOLE = 6000  # characters of a text that is shown whole
_LABEL = re.compile(r"[A-Z]\d+ ")
_DOTS = ("warp_group_dot", "tt.dot", "mma")
_SYNC = ("wait", "dot", "barrier", "commit", "arrive", "yield", "scf.for")  # what an edit is mostly about


def chosen(module: Module, view: Readable, weights: Mapping[str, float], most: int = MOST) -> list[str]:
    """Return the labels of the lines to show, in order; all of them for a short kernel. `weights`: label -> cost."""
    every = [line.label for line in view.lines]
    if len(every) <= most:
        return every
    hot = hot_lines(view, weights)
    if not hot:
        return every[:most]
    wanted = [line.label for line in [view.lines[0], *hot, *_used_by(module, view, hot)]]
    labels = set(list(dict.fromkeys(wanted))[:most])
    return [label for label in every if label in labels]


def hot_lines(view: Readable, weights: Mapping[str, float]) -> list[Line]:
    """Return the hottest loop of each role with the line that opens it; empty for a kernel without loops."""
    hot = list[Line]()
    for _, lines in groupby(view.lines, key=lambda line: line.role):
        hot += max(_loops(list(lines)), key=partial(_heat, weights), default=[])
    return hot


def rows(text: str, labels: Sequence[str]) -> str:
    """Return the rows of a view's text that belong to these labels, with `...` in place of the others."""
    shown, wanted, gap = list[str](), True, False
    for row in text.splitlines():
        if _LABEL.match(row):
            wanted = row.split(" ", 1)[0] in labels
        if not wanted:
            gap = True
            continue
        shown += ["...", row] if gap else [row]
        gap = False
    return "".join(f"{row}\n" for row in [*shown, *(["..."] if gap else [])])


def excerpt(module: Module, view: Readable, weights: Mapping[str, float], most: int = MOST_TTGIR) -> str:
    """Return the TTGIR of the hot loop; if that is too long, only of its lines that wait, multiply or synchronize."""
    hot = hot_lines(view, weights)
    text = excerpts.excerpt(module, view, [line.label for line in hot])
    if len(text) <= most:
        return text
    for words in (_SYNC, _DOTS):
        hot = [line for line in hot if any(word in op.name for op in line.ops for word in words)]
        while words is _DOTS and hot and len(excerpts.excerpt(module, view, [line.label for line in hot])) > most:
            hot.pop()
        text = excerpts.excerpt(module, view, [line.label for line in hot])
        if len(text) <= most:
            break
    return text


def _loops(lines: Sequence[Line]) -> Iterator[list[Line]]:
    """Each innermost loop of a role."""
    for i, line in enumerate(lines):
        body = list(_body(lines, i))
        if body and not any(inner.loops > line.loops + 1 for inner in body):
            yield [line, *body]


def _body(lines: Sequence[Line], i: int) -> Iterator[Line]:
    """Yield the lines of the loop that a line opens; nothing if it opens none."""
    for line in lines[i + 1 :]:
        if line.loops <= lines[i].loops:
            return
        yield line


def _heat(weights: Mapping[str, float], loop: Sequence[Line]) -> tuple[float, int, int]:
    """The key to compare loops by: time if known, then dots, then length."""
    dots = sum(any(d in op.name for d in _DOTS) and "wait" not in op.name for line in loop for op in line.ops)
    return sum(weights.get(line.label, 0.0) for line in loop), dots, len(loop)


def _used_by(module: Module, view: Readable, hot: Sequence[Line]) -> Iterator[Line]:
    """Yield the lines that define the operands of the hot lines, the nearest first."""
    operations = mutable_tree.build(module)
    line_of = {id(operations[place]): line for line in view.lines for place in line.places}
    inside = {line.label for line in hot}
    waiting, seen = list(hot), set[str]()
    while waiting:
        for operation in _givers(operations, waiting.pop(0)):
            giver = line_of.get(id(operation))
            if giver and giver.label not in inside | seen:
                seen.add(giver.label)
                waiting.append(giver)
                yield giver


def _givers(operations: Sequence[MutableOperation], line: Line) -> Iterator[MutableOperation]:
    """Yield the ops whose results a line uses. Constants are left out: they stand in the first line that uses them."""
    for value in (v for place in line.places for v in operations[place].operands if v is not None):
        if isinstance(value.holder, MutableOperation) and value.holder.name != "arith.constant":
            yield value.holder
