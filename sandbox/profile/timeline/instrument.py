"""Puts records of scopes into a TTGIR text: `proton.record start "x"` before a scope's first op, `end` after its last.

The text stays what it is beside that, so it compiles to the same schedule of ops; registers and shared memory may
differ. Whether the result is TTGIR, Triton's parser says (`sandbox/ttgir/triton_parser.py` with records), where the
dialect is loaded.
"""

from collections import defaultdict
from collections.abc import Mapping

from pgo_agent.sandbox.profile.timeline.scope_sets import MOST, Scope, ScopeSet, Unsupported, Why, obstacle
from pgo_agent.sandbox.ttgir.tree import Module, Op, Region

Lines = Mapping[int, list[str]]


def instrument(module: Module, scopes: ScopeSet) -> str | Unsupported:
    """Return the module's text with the records, or why there is none."""
    if problem := obstacle(module):
        return problem
    if len(scopes.scopes) > MOST or len(scopes.named) < len(scopes.scopes):
        return Unsupported(Why.SCOPES, f"{len(scopes.scopes)} scopes; a build can tell {MOST} names apart")
    lines = {op.line for op in module.kernel.walk()}
    lost = next((s for s in scopes.scopes if not {s.first, s.last} <= lines), None)
    if lost:
        return Unsupported(Why.PLACE, f"no op begins where {lost.name} does")
    before, after = _records(scopes.scopes)
    return f"{module.before}{_op(module.op, before, after)}{module.after}"


def _records(scopes: tuple[Scope, ...]) -> tuple[Lines, Lines]:
    """Records before and after ops, by the lines of these. What holds another scope starts first and ends last."""
    before: dict[int, list[str]] = defaultdict(list)
    after: dict[int, list[str]] = defaultdict(list)
    outer_first = sorted(scopes, key=lambda s: (s.first, -s.last, bool(not s.ops)))
    for s in outer_first:
        before[s.first].append(_record("start", s))
        if not s.ops:
            before[s.first].append(_record("end", s))
    for s in reversed(outer_first):
        if s.ops:
            after[s.last].append(_record("end", s))
    return before, after


def _record(edge: str, scope: Scope) -> str:
    return f'proton.record {edge} "{scope.name}"'


def _op(op: Op, before: Lines, after: Lines) -> str:
    text = "".join(_region(p, before, after) if isinstance(p, Region) else p for p in op.parts)
    indent = text[: len(text) - len(text.lstrip())].rpartition("\n")[2]
    return _lines(before.get(op.line, []), indent) + text + _lines(after.get(op.line, []), indent)


def _region(region: Region, before: Lines, after: Lines) -> str:
    return "".join(b.head + "".join(_op(o, before, after) for o in b.ops) for b in region.blocks)


def _lines(records: list[str], indent: str) -> str:
    return "".join(f"\n{indent}{r}" for r in records)
