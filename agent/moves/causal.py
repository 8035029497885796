"""A causal loop in two: the steps in which the mask hides nothing run without it, the others as before.

For loops whose scores pass `tl.where(rows >= columns, scores, ..)`, in any order and either direction, also with other
conditions beside it, added to the scores (`scores + tl.where(.., 0, ..)`), or under an `if` on a constant. From the
comparison follows up to (or from) which step it holds for the whole tile; there the loop is cut. Steps that are hidden
in full still run: to skip them could change values. Each step computes the same from the same as before: where a select
stood between a product and a sum, the compiler may now fuse them, and x + 0 may have been 0.0 for -0.0. Relies on
`affine.py` for the proof and on `facts.py` for the shapes of what the select chose from.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import libcst as cst
from pgo_agent.agent.moves.analysis import DoesNotApply, masks, unmask
from pgo_agent.agent.moves.analysis.affine import Bound, Indices, bounds
from pgo_agent.agent.moves.analysis.cst_util import (
    Statement,
    before,
    change,
    code,
    expression,
    fresh,
    functions,
    keywords,
    lines,
    names,
    nodes,
    reachable,
    said,
    spread,
    visited,
    writes,
)
from pgo_agent.agent.moves.analysis.facts import Program
from pgo_agent.agent.moves.analysis.index_algebra import Unknown
from pgo_agent.agent.moves.analysis.loops import over
from pgo_agent.agent.moves.analysis.masks import Masks
from pgo_agent.agent.moves.analysis.poly_text import counted
from pgo_agent.agent.moves.analysis.reach import Reach
from pgo_agent.agent.moves.move import SourceMove, Subject
from pgo_agent.agent.profile.findings import Defect

_LONG = 80  # columns of an expression that goes on one line
_NONE = "no loop selects scores with tl.where by a comparison of rows with columns"


def rewrite(subject: Subject) -> str:
    """Splits every loop that has the form. Raises DoesNotApply when none has."""
    module = cst.parse_module(subject.source)
    known = functions(module)
    program = Program(change(module, {n: spread(known[n]) for n in reachable(module, subject.kernel)}), subject.kernel)
    changed, reasons = dict[str, cst.FunctionDef](), list[tuple[bool, str]]()
    for name, reach in program.reaches.items():
        plans = dict(_plans(program, reach, reasons))
        if plans:
            taken = names(reach.function) | set(reach.parameters)
            changed[name] = visited(reach.function, _Split(plans, taken))
    if not changed:
        raise DoesNotApply(min(reasons, default=(True, _NONE), key=lambda r: r[0])[1])
    return change(module, changed).code


@dataclass(frozen=True)
class Plan:
    """How to split one loop."""

    masks: Masks
    bound: Bound
    indices: Indices
    start: cst.BaseExpression


def _plans(program: Program, reach: Reach, reasons: list[tuple[bool, str]]) -> Iterator[tuple[int, Plan]]:
    for node in (n for n in nodes(reach.function) if isinstance(n, cst.For)):
        try:
            plan = _plan(program, reach, node)
        except (DoesNotApply, Unknown) as e:
            reasons.append((isinstance(e, Unknown), str(e)))
        else:
            if plan is not None:
                yield id(node), plan


def _plan(program: Program, reach: Reach, loop: cst.For) -> Plan | None:
    if id(loop) not in reach.entry or not isinstance(loop.target, cst.Name):
        return None
    indices = Indices(program, reach, loop)
    found = masks.find(program, reach, loop, indices)
    if found is None:
        return None
    start, _, step = bounds(loop)
    if len(set(found.bounds)) > 1:
        raise DoesNotApply("a loop with more than one mask of rows against columns")
    if any(isinstance(n, cst.Break | cst.Continue | cst.Return) for n in nodes(loop.body)):
        raise DoesNotApply("the causal loop can be left early")
    if "warp_specialize" in keywords(cst.ensure_type(loop.iter, cst.Call)):
        raise DoesNotApply("the causal loop is warp-specialized: Triton 3.6 does not compile two such loops in a row")
    if not indices.positive(step):
        raise DoesNotApply(f"the step {said(step)} of the causal loop is not known to be positive")
    _not_yet(program, reach, loop, found)
    return Plan(found, found.bounds[0], indices, start)


def _not_yet(program: Program, reach: Reach, loop: cst.For, found: Masks) -> None:
    """Raises DoesNotApply for a loop that somebody split already: here, or by calling a helper for each part."""
    for block in (n for n in nodes(reach.function) if isinstance(n, cst.IndentedBlock)):
        for one, other in pairwise(s for s in block.body if isinstance(s, cst.For)):
            if loop in (one, other) and (cut := _stop(one)) and cut == _start(other):
                raise DoesNotApply(f"the loop is split at {cut} already")
    for condition in found.conditions:
        for name in names(condition.test) & set(reach.parameters):
            given = {code(e) for e in program.arguments(reach.parameters[name])}
            if len(given) > 1:
                listed = ", ".join(f"{name}={g}" for g in sorted(given))
                raise DoesNotApply(f"{reach.name} is called for each part of the loop already: with {listed}")


def _start(loop: cst.For) -> str:
    return _range(loop)[0]


def _stop(loop: cst.For) -> str:
    return _range(loop)[1]


def _range(loop: cst.For) -> tuple[str, str]:
    try:
        start, stop, _ = bounds(loop)
    except Unknown:
        return "", ""
    return code(start), code(stop)


# rewriting ------------------------------------------------------------------------------------------------------------


class _Split(cst.CSTTransformer):
    def __init__(self, plans: dict[int, Plan], taken: set[str]) -> None:
        self.plans, self.taken = plans, taken

    def leave_For(
        self, original_node: cst.For, updated_node: cst.For
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]:
        plan = self.plans.get(id(original_node))
        if plan is None:
            return updated_node
        split = self._split(plan, original_node)
        if not plan.masks.conditions:
            return cst.FlattenSentinel(split)
        bare = original_node.with_changes(leading_lines=[])
        return cst.If(
            test=expression(" and ".join(c.text for c in plan.masks.conditions)),
            body=cst.IndentedBlock(split),
            orelse=cst.Else(cst.IndentedBlock([bare])),
            leading_lines=original_node.leading_lines,
        )

    def _split(self, plan: Plan, loop: cst.For) -> list[Statement]:
        _, stop, step = bounds(loop)
        first, low = self._named(plan.start, "low", True)
        second, high = self._named(stop, "high", not names(stop) & writes(loop.body))
        middle = self._fresh("middle")
        parts = [unmask.unmasked(loop, plan.masks), unmask.without_conditions(loop, plan.masks)]
        which = f"before `{middle}`" if plan.bound.sign < 0 else f"from `{middle}` on"
        if plan.bound.sign > 0:
            parts.reverse()
        cut = _commented(
            f"# All steps {which} lie wholly inside the mask and run without it.",
            self._middle(plan, middle, low, high, step),
        )
        leading = [] if plan.masks.conditions else loop.leading_lines
        opened = over(parts[0], expression(low), expression(middle)).with_changes(leading_lines=leading)
        closed = over(parts[1], expression(middle), expression(high)).with_changes(leading_lines=[])
        return [*before(opened, [*first, *second, *cut]), closed]

    def _middle(self, plan: Plan, middle: str, low: str, high: str, step: cst.BaseExpression) -> str:
        """The first step of the second loop: as many steps from the start as are certain, and not beyond the end."""
        i, b = plan.indices, plan.bound
        begin, by = i.known(plan.start, low), i.known(step)
        least = b.rest - 1 if b.sign < 0 else -b.rest  # the largest speed * variable of the first loop
        count = (least - b.speed * begin + b.speed * by).expand()
        divisor = (b.speed * by).expand()
        steps = f"tl.maximum({counted(count)}, 0)"
        if divisor != 1:
            steps += f" // {_operand(counted(divisor))}"
        if by != 1:
            steps += f" * {_operand(counted(by))}"
        if begin != 0:
            steps = f"{low} + {steps}"
        if len(steps) + len(high) < _LONG:
            return f"{middle} = tl.minimum({steps}, {high})"
        return f"{middle} = {steps}\n{middle} = tl.minimum({middle}, {high})"

    def _named(self, e: cst.BaseExpression, name: str, unchanged: bool) -> tuple[list[Statement], str]:
        """An expression as a name or number, and the statement that gives it that name."""
        if isinstance(e, cst.Integer) or (isinstance(e, cst.Name) and unchanged):
            return [], code(e)
        name = self._fresh(name)
        return lines(f"{name} = {' '.join(code(e).split())}"), name

    def _fresh(self, wanted: str) -> str:
        name = fresh(wanted, self.taken)
        self.taken.add(name)
        return name


def _commented(comment: str, text: str) -> list[Statement]:
    """Statements under a comment line."""
    head, *rest = lines(text)
    line = cst.EmptyLine(comment=cst.Comment(comment))
    return [cst.ensure_type(head, cst.SimpleStatementLine).with_changes(leading_lines=[line]), *rest]


def _operand(text: str) -> str:
    return text if text.isalnum() or text.isidentifier() else f"({text})"


MOVE = SourceMove(
    name="split a causal loop into unmasked and masked parts",
    symptom="every block of keys is masked, though only those on the diagonal need it",
    gain=(
        "judged on an H200, on descriptors: fa_fwd 1.02 to 1.04x of the shipped kernel, less than descriptors "
        "alone in the causal cases; elsewhere, with a better order of the rows, about 4 % at 4k tokens (H100)"
    ),
    archs=(80, 86, 89, 90, 100, 103, 120),
    rewrite=rewrite,
    cures=(Defect.ARITHMETIC,),
)
