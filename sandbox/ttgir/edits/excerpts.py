"""The TTGIR of lines of the readable view, for a prompt: what an edit of these lines needs to name values and layouts.

Ops stand under their labels without locations, of loops and branches only the head. Constants that they use and what
their layouts stand for follow as comments.
"""

import textwrap
from collections.abc import Iterable, Iterator

from pgo_agent.sandbox.ttgir import triton_parser
from pgo_agent.sandbox.ttgir.edits import working
from pgo_agent.sandbox.ttgir.edits.working import Cell
from pgo_agent.sandbox.ttgir.pseudocode.view import Line, Readable
from pgo_agent.sandbox.ttgir.tokens import tokens
from pgo_agent.sandbox.ttgir.tree import Module


def excerpt(module: Module, view: Readable, labels: Iterable[str]) -> str:
    """The ops of lines as text. Raises KeyError for a label that there is not."""
    cells = working.build(module)
    heads = {
        cells[a.places[0]] for a, b in zip(view.lines, view.lines[1:], strict=False) if b.depth > a.depth and a.places
    }
    listed = [view.line(label) for label in labels]
    shown = {line.label: _shown(line, cells, heads) for line in listed}
    ops = [cell for found in shown.values() for cell in found]
    said = [text for line in listed for text in _said(line.label, shown[line.label], heads)]
    return "".join(f"{text}\n" for text in [*said, *_constants(ops), *_layouts(module, said)])


def _shown(line: Line, cells: list[Cell], heads: set[Cell]) -> list[Cell]:
    """The ops of a line in the order of the text, without those inside of another that is shown whole."""
    told = [cells[p] for p in sorted(line.places) if cells[p].name != "module"]
    whole = set(told) - heads
    return [cell for cell in told if not any(outer in whole for outer in list(cell.around())[1:])]


def _said(label: str, cells: list[Cell], heads: set[Cell]) -> Iterator[str]:
    yield f"// {label}" if cells else f"// {label} has no op"
    for cell in cells:
        yield _text(str(cell.parts[0]) if cell in heads else working.text(cell))


def _text(text: str) -> str:
    """An op's text without locations and without the indent that it has in the module."""
    first, *more = triton_parser.bare(text).strip("\n").split("\n")
    return "\n".join([first.strip(), *textwrap.dedent("\n".join(more)).split("\n")] if more else [first.strip()])


def _constants(shown: list[Cell]) -> Iterator[str]:
    """Constants that the ops use and that are not among them."""
    used = [v.holder for cell in shown for v in cell.operands if v is not None]
    for cell in dict.fromkeys(used):
        if isinstance(cell, Cell) and cell.name == "arith.constant" and cell not in shown:
            yield f"// {_text(working.text(cell))}"


def _layouts(module: Module, said: list[str]) -> Iterator[str]:
    named = {t.text for text in said for t in tokens(text) if t.kind == "alias"}
    for alias, meaning in module.aliases.items():
        if alias in named and not alias.startswith("#loc"):
            yield f"// {alias} = {meaning}"
