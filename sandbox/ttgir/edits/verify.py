"""Edits applied and read by Triton's own parser and verifier, whose errors are reported for the edit that caused them.

Triton names a line of the new text. The op there leads to the edit: the one that put it there, or the one that changed
what it uses.
"""

from collections.abc import Callable, Iterable

from pgo_agent.sandbox.ttgir.edits import apply
from pgo_agent.sandbox.ttgir.edits.apply import Edited
from pgo_agent.sandbox.ttgir.edits.errors import BadEdit
from pgo_agent.sandbox.ttgir.edits.mutable_tree import MutableOperation
from pgo_agent.sandbox.ttgir.edits.script import Edit
from pgo_agent.sandbox.ttgir.pseudocode.view import Readable
from pgo_agent.sandbox.ttgir.tree import Module
from pgo_agent.sandbox.ttgir.triton_parser import Answer, Diagnostic

Ask = Callable[[str], Answer]  # `triton_parser.ask` with its box, content store and architecture


def verified(module: Module, view: Readable, edits: Iterable[Edit], ask: Ask) -> str:
    """Return the module's text after all edits, which Triton reads. Raises BadEdit, and what `ask` raises."""
    edited = apply.edited(module, view, edits)
    refused(edited, ask(edited.text))
    return edited.text


def refused(edited: Edited, answer: Answer) -> None:
    """Raise BadEdit where Triton refuses the new text."""
    error = answer.error
    if error is None:
        return
    operation = edited.at(error.line) if error.line else None
    where = (
        f"{edited.lines.name(operation)}: "
        if operation is not None and edited.lines.name(operation) != operation.name
        else ""
    )
    raise BadEdit(_at_fault(edited, [error, *answer.diagnostics]), f"Triton refuses it: {where}{error.message[:400]}")


def _at_fault(edited: Edited, diagnostics: list[Diagnostic]) -> Edit | None:
    """Return the edit that touched what Triton speaks of, or what that uses; the only one where there is but one."""
    operations = [operation for d in diagnostics if d.line and (operation := edited.at(d.line)) is not None]
    for operation in operations:
        if operation.blame():
            return edited.edit(operation.blame())
    for operation in operations:
        if (blame := _used(operation)) != 0:
            return edited.edit(blame)
    return edited.edits[0] if len(edited.edits) == 1 else None


def _used(operation: MutableOperation) -> int:
    """Return the last edit that touched what gives an op its values."""
    holders = [v.holder for v in operation.operands if v is not None and isinstance(v.holder, MutableOperation)]
    return max((h.blame() for h in holders), default=0)
