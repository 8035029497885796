"""Edits applied and read by Triton's own parser and verifier, whose words are told of the edit that caused them.

Triton names a line of the new text. What stands there tells the edit: the one that put it there, or the one that
changed what it uses.
"""

from collections.abc import Callable, Iterable

from pgo_agent.sandbox.ttgir.edits import applying
from pgo_agent.sandbox.ttgir.edits.applying import Edited
from pgo_agent.sandbox.ttgir.edits.faults import BadEdit
from pgo_agent.sandbox.ttgir.edits.script import Edit
from pgo_agent.sandbox.ttgir.edits.working import Cell
from pgo_agent.sandbox.ttgir.pseudocode.view import Readable
from pgo_agent.sandbox.ttgir.tree import Module
from pgo_agent.sandbox.ttgir.triton_parser import Answer, Diagnostic

Ask = Callable[[str], Answer]  # `oracle.ask` with its box, shelf and architecture


def verified(module: Module, view: Readable, edits: Iterable[Edit], ask: Ask) -> str:
    """The module's text after all edits, which Triton reads. Raises BadEdit, and what `ask` raises."""
    made = applying.edited(module, view, edits)
    refused(made, ask(made.text))
    return made.text


def refused(made: Edited, answer: Answer) -> None:
    """Raises BadEdit where Triton refuses the new text."""
    error = answer.error
    if error is None:
        return
    cell = made.at(error.line) if error.line else None
    where = f"{made.lines.name(cell)}: " if cell is not None and made.lines.name(cell) != cell.name else ""
    raise BadEdit(_at_fault(made, [error, *answer.diagnostics]), f"Triton refuses it: {where}{error.message[:400]}")


def _at_fault(made: Edited, said: list[Diagnostic]) -> Edit | None:
    """The edit that touched what Triton speaks of, or what that uses; the only one where there is but one."""
    cells = [cell for d in said if d.line and (cell := made.at(d.line)) is not None]
    for cell in cells:
        if cell.blame():
            return made.edit(cell.blame())
    for cell in cells:
        if (blame := _used(cell)) != 0:
            return made.edit(blame)
    return made.edits[0] if len(made.edits) == 1 else None


def _used(cell: Cell) -> int:
    """The last edit that touched what gives an op its values."""
    holders = [v.holder for v in cell.operands if v is not None and isinstance(v.holder, Cell)]
    return max((h.blame() for h in holders), default=0)
