"""Carry the second dot of a loop one iteration: its operands wait while the next first dot is already issued.

For loops as of attention: a first dot, arithmetic on its result, then `acc = tl.dot(x, v, acc)`. The loop is rotated so
that the second dot of iteration i runs after the first dot of iteration i + 1: on Hopper the tensor cores then work
while the softmax does. Each value is computed from the same operands in the same order as before. Relies on libcst; it
reads def and use of plain names in a straight-line body and gives up on anything else.
"""

from dataclasses import dataclass

import libcst as cst
import libcst.matchers as m
from pgo_agent.agent.moves.analysis import DoesNotApply
from pgo_agent.agent.moves.analysis.cst_format import addend, operand, side
from pgo_agent.agent.moves.analysis.cst_util import (
    Rename,
    Statement,
    code,
    contains,
    expression,
    in_kernel,
    lines,
    names,
    nodes,
    reads,
    repeatable,
    said,
    writes,
)
from pgo_agent.agent.moves.analysis.loops import Bounds, ascending, bounds_of, unrolled
from pgo_agent.agent.moves.analysis.reach import Reach
from pgo_agent.agent.moves.move import SourceMove, Subject
from pgo_agent.agent.profile.findings import Defect

_DOT = m.Attribute(value=m.Name("tl"), attr=m.Name("dot"))


@dataclass(frozen=True)
class Rotation:
    """A loop body, sorted by what each statement is for."""

    variable: str  # the loop's
    low: cst.BaseExpression
    high: cst.BaseExpression
    step: cst.BaseExpression
    first: list[Statement]  # up to the first dot
    rest: list[Statement]  # after it: makes what the second dot waits for
    copies: list[Statement]  # index arithmetic that both sides need
    loads: list[Statement]  # what only the second dot reads
    rescale: list[Statement]  # what is done to the accumulator before it
    accumulator: str
    operands: tuple[cst.BaseExpression, cst.BaseExpression]


def rewrite(subject: Subject) -> str:
    """Rotates every loop that has the form. Raises DoesNotApply when none has."""
    visitor = _Rotate()
    changed = in_kernel(subject.source, subject.kernel, lambda f: cst.ensure_type(f.visit(visitor), cst.FunctionDef))
    if not visitor.done:
        raise DoesNotApply(visitor.reasons[0] if visitor.reasons else "no loop with two dots in a row")
    return changed


class _Rotate(cst.CSTTransformer):
    def __init__(self) -> None:
        self.done, self.reasons = 0, list[str]()
        self.functions: list[cst.FunctionDef] = []

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self.functions.append(node)

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        self.functions.pop()
        return updated_node

    def leave_For(self, original_node: cst.For, updated_node: cst.For) -> cst.BaseStatement:
        try:
            rotation = _sort(updated_node)
            _stay_inside(rotation, self.functions, original_node)
            asserted = ascending(rotation.step, self.functions[-1])
        except DoesNotApply as e:
            self.reasons.append(str(e))
            return updated_node
        self.done += 1
        return _rotated(rotation, asserted)


# analysis -------------------------------------------------------------------------------------------------------------


def _sort(loop: cst.For) -> Rotation:
    low, high, step = _bounds(loop)
    variable = cst.ensure_type(loop.target, cst.Name).value
    body = list(cst.ensure_type(loop.body, cst.IndentedBlock).body)
    dots = [i for i, s in enumerate(body) if contains(s, "dot")]
    if len(dots) != 2:
        raise DoesNotApply(f"a loop with {len(dots)} dots, not two")
    if not all(map(repeatable, (low, high, step))) or names(loop.iter) & writes(loop.body):
        raise DoesNotApply(f"a bound of its loop may change when it is computed twice: {said(loop.iter)}")
    accumulator, x, v = _accumulating(body[dots[1]])
    between = [s for i, s in enumerate(body) if i != dots[1]]
    after_first = _tainted(between, writes(body[dots[0]]))
    rescale = [s for s in between if accumulator in writes(s)]
    free = _free(between) | {variable}
    index = [s for s in between if s not in after_first and reads(s) <= free and not contains(s, "dot")]
    loads = [s for s in between if writes(s) & names(v) and s not in after_first]
    copies = [s for s in index if s not in loads and any(writes(s) & reads(u) for u in (*loads, *rescale))]
    producers = [s for s in between if s not in rescale and s not in loads]
    at = producers.index(body[dots[0]]) + 1
    found = Rotation(
        variable, low, high, step, producers[:at], producers[at:], copies, loads, rescale, accumulator, (x, v)
    )
    _prove(found, loads, copies)
    return found


def _prove(r: Rotation, loads: list[Statement], copies: list[Statement]) -> None:
    """Raises DoesNotApply unless moving the second dot behind the next first dot changes no value."""
    late = {r.accumulator}.union(*(writes(s) for s in loads))
    if not loads:
        raise DoesNotApply("the second dot's operand is not loaded in the loop")
    if any(reads(s) & late for s in (*r.first, *r.rest)):
        raise DoesNotApply("the loop reads its accumulator before the second dot")
    carried = set[str]().union(*(reads(s) for s in r.rescale)) - {r.accumulator}
    made = set[str]().union(*(writes(s) for s in (*r.first, *r.rest)))
    early = set[str]().union(*(writes(s) for s in r.first)) - set[str]().union(*(writes(s) for s in copies))
    if carried & early:
        raise DoesNotApply(f"{', '.join(sorted(carried & early))} is overwritten before the second dot would use it")
    allowed = set[str]().union(*(writes(s) for s in copies)) | {r.variable}
    if any((reads(s) & made) - allowed for s in loads):
        raise DoesNotApply("what the second dot loads depends on the first dot")
    if any(_twice(name, [*r.first, *r.rest]) for name in allowed - {r.variable}):
        raise DoesNotApply("an index is assigned twice")


def _stay_inside(r: Rotation, functions: list[cst.FunctionDef], loop: cst.For) -> None:
    """What the rotated loop leaves in its helper names differs: nothing outside may look at them."""
    if not functions:
        raise DoesNotApply("a loop outside of a function")
    changed = {r.variable}.union(*(writes(s) for s in (*r.loads, *r.copies)))
    inside = {id(n) for n in nodes(loop)}
    seen = {
        d.name
        for read, definitions in Reach(functions[-1]).reads.items()
        for d in definitions
        if read not in inside and id(d.statement) in inside and d.name in changed
    }
    seen |= _own_names(r) & names(functions[-1])
    if seen or r.variable in names(loop.iter):
        raise DoesNotApply(f"{', '.join(sorted(seen))} is used outside of the loop")


def _own_names(r: Rotation) -> set[str]:
    return {f"{r.accumulator}_waiting", f"{r.variable}_before", f"{r.variable}_last"}


def _twice(name: str, statements: list[Statement]) -> bool:
    return sum(name in writes(s) for s in statements) > 1


def _bounds(loop: cst.For) -> Bounds:
    found = bounds_of(loop)
    if found is None or unrolled(loop):
        raise DoesNotApply("a loop that is not over a range")
    call = cst.ensure_type(loop.iter, cst.Call)
    if not isinstance(loop.target, cst.Name) or any(a.keyword for a in call.args) or len(call.args) != 3:
        raise DoesNotApply("a range without plain start, stop and step")
    return found


def _accumulating(s: Statement) -> tuple[str, cst.BaseExpression, cst.BaseExpression]:
    """The parts of `acc = tl.dot(x, v, acc)`."""
    form = m.SimpleStatementLine(body=[m.Assign(targets=[m.AssignTarget(target=m.Name())], value=m.Call(func=_DOT))])
    if not m.matches(s, form):
        raise DoesNotApply("the second dot is not a plain assignment")
    assign = cst.ensure_type(cst.ensure_type(s, cst.SimpleStatementLine).body[0], cst.Assign)
    name = cst.ensure_type(assign.targets[0].target, cst.Name).value
    args = cst.ensure_type(assign.value, cst.Call).args
    if len(args) != 3 or any(a.keyword for a in args) or not m.matches(args[2].value, m.Name(name)):
        raise DoesNotApply("the second dot does not accumulate into the name that it is given")
    return name, args[0].value, args[1].value


def _free(body: list[Statement]) -> set[str]:
    """Names that the body reads and never assigns: they do not change from iteration to iteration."""
    return set[str]().union(*(reads(s) for s in body)) - set[str]().union(*(writes(s) for s in body))


def _tainted(body: list[Statement], seeds: set[str]) -> list[Statement]:
    """Statements that depend on the seeds, within an iteration or from one to the next."""
    tainted, grown = set(seeds), True
    while grown:
        fresh = set[str]().union(*(writes(s) for s in body if reads(s) & tainted)) - tainted
        tainted, grown = tainted | fresh, bool(fresh)
    return [s for s in body if writes(s) & tainted]


# rewriting ------------------------------------------------------------------------------------------------------------


def _rotated(r: Rotation, asserted: str) -> cst.If:
    low, high, step = addend(r.low), code(r.high), operand(r.step)
    waiting = f"{r.accumulator}_waiting"
    x = code(r.operands[0])
    produce = [*r.first, *r.rest, *r.loads, *lines(f"{waiting} = {x}")]
    inner = [*r.first, *_second(r, f"{r.variable}_before", f"{r.variable} - {step}", waiting), *r.rest]
    loop = cst.For(
        target=cst.Name(r.variable),
        iter=expression(f"range({low} + {step}, {high}, {code(r.step)})"),
        body=cst.IndentedBlock([*inner, *r.loads, *lines(f"{waiting} = {x}")]),
    )
    last = f"{low} + (tl.cdiv({addend(r.high)} - ({code(r.low)}), {code(r.step)}) - 1) * {step}"
    begin = lines(f"{asserted}{r.variable} = {side(r.low)}")
    body = [*begin, *produce, loop, *_second(r, f"{r.variable}_last", last, waiting)]
    return cst.If(test=expression(f"{side(r.low)} < {side(r.high)}"), body=cst.IndentedBlock(body))


def _second(r: Rotation, name: str, value: str, waiting: str) -> list[Statement]:
    """The second dot of the iteration whose loop variable is `value`."""
    suffix = name.removeprefix(r.variable)
    renamed = {r.variable: name} | {w: w + suffix for s in r.copies for w in writes(s)}
    moved = [_renamed(s, renamed) for s in (*r.copies, *r.loads)]
    v = code(r.operands[1])
    return [
        *lines(f"{name} = {value}"),
        *moved,
        *r.rescale,
        *lines(f"{r.accumulator} = tl.dot({waiting}, {v}, {r.accumulator})"),
    ]


def _renamed(s: Statement, names: dict[str, str]) -> Statement:
    changed = s.visit(Rename(names))
    if not isinstance(changed, cst.BaseStatement):
        raise TypeError("a renamed statement is a statement")
    return changed


MOVE = SourceMove(
    name="carry the second dot",
    symptom="the tensor cores wait while the softmax runs",
    gain=(
        "judged on an H200, fa_fwd by case: 0.84 to 0.94x with pointers, 0.83 to 0.93x with descriptors; by hand, "
        "with descriptors, it once gained 4 to 9 % (attention forward, D=128)"
    ),
    archs=(90,),
    rewrite=rewrite,
    cures=(Defect.DOT_WAIT, Defect.ARITHMETIC),
)
