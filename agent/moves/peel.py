"""Peel the first iteration of a loop with a dot, so that the loop's accumulator starts from a dot before it.

For loops whose tensor instructions ptxas serializes (C7515). `guard.py` cures the same with a test alone; here the
first iteration also runs outside of the pipeline: it may hide the start of a short loop, and its operands need the
shared memory of one more stage. Bit-equal: the same iterations in the same order. Relies on libcst and on the forms of
`guard.py`; a step that is a constant of the kernel gets an assertion that it is positive.
"""

import libcst as cst
from pgo_agent.agent.moves.base import DoesNotApply, SourceMove, Subject
from pgo_agent.agent.moves.guard import Loops, check_symptom
from pgo_agent.agent.moves.ranges import bounds_of
from pgo_agent.agent.moves.syntax import (
    change,
    code,
    constexprs,
    expression,
    functions,
    lines,
    nodes,
    visited,
)


def rewrite(subject: Subject) -> str:
    """Peels every loop of the kernel and its helpers that has the form. Raises DoesNotApply."""
    check_symptom(subject)
    module = cst.parse_module(subject.source)
    loops, peel = Loops(module, subject.kernel), _Peel()
    for name in loops.known:
        loops.collect(name)
        peel.collect(loops.known[name], set(loops.tests))
    reasons = [*peel.reasons, *loops.reasons]
    if not peel.chosen:
        raise DoesNotApply(reasons[0] if reasons else "no loop with a dot")
    return change(module, {n: visited(f, peel) for n, f in functions(module).items() if n in loops.known}).code


class _Peel(cst.CSTTransformer):
    """Puts the first iteration before each chosen loop, both behind the test that there is one."""

    def __init__(self) -> None:
        self.chosen, self.reasons = dict[int, str](), list[str]()  # id of a loop -> what must be asserted

    def collect(self, function: cst.FunctionDef, fit: set[int]) -> None:
        for loop in nodes(function.body):
            if isinstance(loop, cst.For) and id(loop) in fit:
                try:
                    self.chosen[id(loop)] = _check(loop, function)
                except DoesNotApply as e:
                    self.reasons.append(str(e))

    def leave_For(self, original_node: cst.For, updated_node: cst.For) -> cst.For | cst.If:
        bounds = bounds_of(original_node)
        if id(original_node) not in self.chosen or bounds is None:
            return updated_node
        low, high, step = map(code, bounds)
        call = cst.ensure_type(updated_node.iter, cst.Call)
        hints = [code(a).rstrip(", ") for a in call.args if a.keyword is not None]
        start = step if low == "0" else f"{low} + {step}"
        rest = f"{code(call.func)}({', '.join([start, high, step, *hints])})"
        loop = updated_node.with_changes(iter=expression(rest), leading_lines=[])
        head = f"{self.chosen[id(original_node)]}{code(original_node.target)} = {low}"
        first = [*lines(head), *original_node.body.body]
        body = cst.IndentedBlock([s for s in (*first, loop) if isinstance(s, cst.BaseStatement)])
        return cst.If(test=expression(f"{low} < {high}"), body=body, leading_lines=updated_node.leading_lines)


def _check(loop: cst.For, function: cst.FunctionDef) -> str:
    """Raises DoesNotApply unless the first iteration can stand by itself; gives what must be asserted for it."""
    variable, bounds = code(loop.target), bounds_of(loop)
    below = list(nodes(loop.body))
    if any(isinstance(n, cst.Break | cst.Continue | cst.Return) for n in below):
        raise DoesNotApply("its loop may end early")
    if any(isinstance(n, cst.For) for n in below):
        raise DoesNotApply("its loop holds another loop")
    if any(isinstance(n, cst.Attribute) and code(n.value) == variable for n in below):
        raise DoesNotApply(
            f"it calls a method of its loop's variable {variable}, which is a plain number before the loop"
        )
    if bounds is None:
        raise DoesNotApply("its loop is not over a range")
    return _positive(bounds[2], function)


def _positive(step: cst.BaseExpression, function: cst.FunctionDef) -> str:
    """What to assert of a step, so that it is positive. Nothing of a literal, or of the size of a range of indices."""
    sizes = {code(n.args[1].value) for n in nodes(function) if isinstance(n, cst.Call) and _arange(n)}
    if isinstance(step, cst.Integer) and int(step.value) > 0:
        return ""
    if not isinstance(step, cst.Name) or step.value not in constexprs(function):
        raise DoesNotApply("the step of its loop is not known to be positive")
    return "" if step.value in sizes else f"tl.static_assert({step.value} > 0)\n"


def _arange(call: cst.Call) -> bool:
    return code(call.func).endswith("arange") and len(call.args) == 2


MOVE = SourceMove(
    name="peel the first iteration",
    symptom="ptxas serializes the loop's tensor instructions (C7515)",
    gain="compiled for an H200: C7515 gone, for the shared memory of one more stage; not timed yet",
    archs=(90,),
    rewrite=rewrite,
)
