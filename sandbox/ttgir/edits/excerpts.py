"""The TTGIR of lines of the readable view, for a prompt: what an edit of these lines needs to name values and layouts.

Ops stand under their labels without locations, of loops and branches only the head. Constants that they use and what
their layouts stand for follow as comments.
"""

import textwrap
from collections.abc import Iterable, Iterator

from pgo_agent.sandbox.ttgir import triton_parser
from pgo_agent.sandbox.ttgir.edits import mutable_tree
from pgo_agent.sandbox.ttgir.edits.mutable_tree import MutableOperation
from pgo_agent.sandbox.ttgir.pseudocode.view import Line, Readable
from pgo_agent.sandbox.ttgir.tokens import tokens
from pgo_agent.sandbox.ttgir.tree import Module


def excerpt(module: Module, view: Readable, labels: Iterable[str]) -> str:
    """Return the ops of lines as text. Raises KeyError for an unknown label."""
    operations = mutable_tree.build(module)
    heads = {
        operations[a.places[0]]
        for a, b in zip(view.lines, view.lines[1:], strict=False)
        if b.depth > a.depth and a.places
    }
    listed = [view.line(label) for label in labels]
    shown = {line.label: _shown(line, operations, heads) for line in listed}
    ops = [operation for of_line in shown.values() for operation in of_line]
    texts = [text for line in listed for text in _of_line(line.label, shown[line.label], heads)]
    return "".join(f"{text}\n" for text in [*texts, *_constants(ops), *_layouts(module, texts)])


def _shown(line: Line, operations: list[MutableOperation], heads: set[MutableOperation]) -> list[MutableOperation]:
    """Return the ops of a line in the order of the text, without those inside of another that is shown whole."""
    ops = [operations[p] for p in sorted(line.places) if operations[p].name != "module"]
    whole = set(ops) - heads
    return [operation for operation in ops if not any(outer in whole for outer in list(operation.around())[1:])]


def _of_line(label: str, operations: list[MutableOperation], heads: set[MutableOperation]) -> Iterator[str]:
    yield f"// {label}" if operations else f"// {label} has no op"
    for operation in operations:
        yield _text(str(operation.parts[0]) if operation in heads else mutable_tree.text(operation))


def _text(text: str) -> str:
    """Return an op's text without locations and without the indent that it has in the module."""
    first, *more = triton_parser.bare(text).strip("\n").split("\n")
    return "\n".join([first.strip(), *textwrap.dedent("\n".join(more)).split("\n")] if more else [first.strip()])


def _constants(operations: list[MutableOperation]) -> Iterator[str]:
    """Constants that the ops use and that are not among them."""
    used = [v.holder for operation in operations for v in operation.operands if v is not None]
    for operation in dict.fromkeys(used):
        if (
            isinstance(operation, MutableOperation)
            and operation.name == "arith.constant"
            and operation not in operations
        ):
            yield f"// {_text(mutable_tree.text(operation))}"


def _layouts(module: Module, texts: list[str]) -> Iterator[str]:
    used = {t.text for text in texts for t in tokens(text) if t.kind == "alias"}
    for alias, meaning in module.aliases.items():
        if alias in used and not alias.startswith("#loc"):
            yield f"// {alias} = {meaning}"
