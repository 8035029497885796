"""Exponentials of scaled scores in base 2, with log2(e) folded into the scale.

The GPU computes exp(x) as 2 ** (x * log2(e)): a multiplication for each element. Where x is a difference of values that
a scalar factor already multiplies, the factor takes the log2(e) once and the multiplication goes. `domain.py` finds the
values that this changes, and shows that all their uses are known. Values change by rounding in float32 only: of the
scale and of constants; nothing is rounded to less than before. Where there is no scale to fold into there is no gain,
and the move does not fire.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import libcst as cst
from pgo_agent.agent.moves.analysis import DoesNotApply
from pgo_agent.agent.moves.analysis.cst_format import bracketed
from pgo_agent.agent.moves.analysis.cst_util import (
    Statement,
    before,
    change,
    code,
    fresh,
    functions,
    lines,
    names,
    nodes,
    parameters,
    parents,
    visited,
)
from pgo_agent.agent.moves.analysis.domain import Domain
from pgo_agent.agent.moves.analysis.facts import Program
from pgo_agent.agent.moves.analysis.scores import Edit
from pgo_agent.agent.moves.move import SourceMove, Subject
from pgo_agent.agent.profile.findings import Defect

LOG2E, LN2 = "1.4426950408889634", "0.6931471805599453"
_PRIMARY = cst.Name | cst.Attribute | cst.Call | cst.Subscript | cst.Integer | cst.Float | cst.UnaryOperation


def rewrite(subject: Subject) -> str:
    """Raises DoesNotApply when no exponential can take its scale's log2(e)."""
    module = cst.parse_module(subject.source)
    program = Program(module, subject.kernel)
    exponentials = [
        c
        for r in program.reaches.values()
        for c in nodes(r.function.body)
        if isinstance(c, cst.Call) and program.function(c) == "exp"
    ]
    if not exponentials:
        raise DoesNotApply("no tl.exp in this kernel")
    domain, reasons = Domain(program), list[str]()
    for exponential in exponentials:
        try:
            domain.take(exponential)
        except DoesNotApply as e:
            reasons.append(str(e))
    if not domain.edits:
        raise DoesNotApply(reasons[0])
    _stay_inside(module, program, domain)
    writer = _Writer(program, domain.edits)
    changed = {n: writer.rewritten(r.function) for n, r in program.reaches.items()}
    return change(module, changed).code


def _stay_inside(module: cst.Module, program: Program, domain: Domain) -> None:
    """A helper that now speaks base 2 must have no other callers."""
    others = [s for n, s in functions(module).items() if n not in program.reaches]
    for helper in sorted(domain.groups.interfaces):
        if any(helper in names(f.body) for f in others):
            raise DoesNotApply(f"{helper} is called from elsewhere, too")


@dataclass
class _Hoisted:
    """Scales of one function that get a name of their own, times log2(e)."""

    names: dict[str, str] = field(default_factory=dict)  # scale -> its product's name
    at: dict[int, list[str]] = field(default_factory=dict)  # index of a statement -> scales that it needs first


class _Writer(cst.CSTTransformer):
    """Carries out the edits."""

    def __init__(self, program: Program, edits: Mapping[int, Edit]) -> None:
        self.program, self.edits = program, edits
        self.hoisted, self.parents = _Hoisted(), dict[int, cst.CSTNode]()

    def rewritten(self, function: cst.FunctionDef) -> cst.FunctionDef:
        self.parents, self.hoisted = parents(function), self._hoist(function)
        changed = visited(function, self)
        if not self.hoisted.at:
            return changed
        body = list[Statement]()
        for i, statement in enumerate(cst.ensure_type(changed.body, cst.IndentedBlock).body):
            scales = [f"{self.hoisted.names[s]} = {s} * {LOG2E}" for s in self.hoisted.at.get(i, [])]
            first = [x for s in scales for x in lines(f"{s}  # exp(x) = exp2(x * log2(e))")]
            body += before(cst.ensure_type(statement, cst.BaseStatement), first)  # type: ignore[type-abstract]
        return changed.with_deep_changes(changed.body, body=body)

    def _hoist(self, function: cst.FunctionDef) -> _Hoisted:
        """Scales that are set once can be multiplied before the first statement of the body that needs them."""
        found, taken = _Hoisted(), names(function) | set(parameters(function))
        for i, statement in enumerate(function.body.body if isinstance(function.body, cst.IndentedBlock) else []):
            scales = [n for n in nodes(statement) if isinstance(n, cst.Name) and self._folds(n)]
            for scale in scales:
                if scale.value not in found.names and self._set_once(scale, statement):
                    found.names[scale.value] = fresh(f"{scale.value}_log2e", taken)
                    found.at.setdefault(i, []).append(scale.value)
        return found

    def _folds(self, name: cst.Name) -> bool:
        edit = self.edits.get(id(name))
        return edit is not None and edit.kind == "fold"

    def _set_once(self, scale: cst.Name, statement: cst.CSTNode) -> bool:
        name = self.program.definitions(scale)
        reach = next(r for r in self.program.reaches.values() if id(scale) in r.reads)
        everywhere = [d for d in reach.definitions if d.name == scale.value]
        return len(everywhere) == 1 and set(everywhere) == name and not self._within(everywhere[0].statement, statement)

    def _within(self, node: cst.CSTNode | None, statement: cst.CSTNode) -> bool:
        while node is not None and node is not statement:
            node = self.parents.get(id(node))
        return node is statement

    def on_leave(  # type: ignore[override]
        self, original_node: cst.CSTNode, updated_node: cst.CSTNode
    ) -> cst.CSTNode:
        left = super().on_leave(original_node, updated_node)
        edit = self.edits.get(id(original_node))
        if edit is None or not isinstance(left, cst.BaseExpression):
            return left  # type: ignore[return-value]
        match edit.kind:
            case "exp2" | "log2":
                return _renamed(cst.ensure_type(left, cst.Call), edit.kind)
            case "fold" if isinstance(original_node, cst.Name) and original_node.value in self.hoisted.names:
                return left.with_changes(value=self.hoisted.names[original_node.value])
            case "fold":
                return self._times(original_node, left, LOG2E)
            case "in":
                return self._times(original_node, left if edit.wide else _widened(left), LOG2E)
        return self._times(original_node, left, LN2)

    def _times(self, original: cst.CSTNode, e: cst.BaseExpression, factor: str) -> cst.BaseExpression:
        product = cst.parse_expression(f"{code(e if e.lpar or isinstance(e, _PRIMARY) else bracketed(e))} * {factor}")
        parent = self.parents[id(original)]
        safe = isinstance(parent, cst.Arg | cst.Assign | cst.AugAssign | cst.AnnAssign | cst.Return | cst.Element)
        if isinstance(parent, cst.BinaryOperation):
            left = parent.left is original and isinstance(parent.operator, cst.Multiply | cst.Divide)
            safe = left or isinstance(parent.operator, cst.Add | cst.Subtract)
        return product if safe else bracketed(product)


def _widened(e: cst.BaseExpression) -> cst.BaseExpression:
    return cst.parse_expression(f"{code(e)}.to(tl.float32)")


def _renamed(call: cst.Call, name: str) -> cst.Call:
    """`tl.exp(x)` as `tl.exp2(x)`, under the module that it was called from."""
    func = cst.ensure_type(call.func, cst.Attribute)
    return call.with_changes(func=func.with_changes(attr=cst.Name(name)))


MOVE = SourceMove(
    name="exp to exp2 with the scale folded",
    symptom="each exponential multiplies its argument by log2(e) first",
    gain="one multiplication less for each score; Triton's own tutorial is written so, no figure of it alone is known",
    archs=(80, 86, 89, 90, 100, 103, 120),
    rewrite=rewrite,
    cures=(Defect.ARITHMETIC,),
)
