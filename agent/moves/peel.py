"""Peel the first iteration of a loop with a dot, so that the loop's accumulator starts from a dot before it.

For loops whose tensor instructions ptxas serializes (C7515). `guard.py` cures the same with a test alone; here the
first iteration also runs outside of the pipeline: it may hide the start of a short loop, and its operands need the
shared memory of one more stage. Bit-equal: the same iterations in the same order. Relies on libcst and on the forms of
`guard.py`; a step that is a constant of the kernel gets an assertion that it is positive.
"""

import libcst as cst
from pgo_agent.agent.moves.analysis import DoesNotApply
from pgo_agent.agent.moves.analysis.cst_format import addend, side
from pgo_agent.agent.moves.analysis.cst_util import (
    change,
    code,
    expression,
    functions,
    lines,
    names,
    nodes,
    visited,
    writes,
)
from pgo_agent.agent.moves.analysis.loops import ascending, bounds_of, over
from pgo_agent.agent.moves.guard import Loops, check_symptom
from pgo_agent.agent.moves.move import SourceMove, Subject
from pgo_agent.agent.profile.findings import Defect


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
        low, high, step = bounds
        start = step if code(low) == "0" else expression(f"{addend(low)} + {code(step)}")
        loop = over(updated_node, start, high).with_changes(leading_lines=[])
        head = f"{self.chosen[id(original_node)]}{code(original_node.target)} = {side(low)}"
        first = [*lines(head), *original_node.body.body]
        body = cst.IndentedBlock([s for s in (*first, loop) if isinstance(s, cst.BaseStatement)])
        test = expression(f"{side(low)} < {side(high)}")
        return cst.If(test=test, body=body, leading_lines=updated_node.leading_lines)


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
    if changing := writes(loop.body) & names(loop.iter):
        raise DoesNotApply(f"its loop changes {', '.join(sorted(changing))}, which it runs to or steps by")
    return ascending(bounds[2], function)


MOVE = SourceMove(
    name="peel the first iteration",
    symptom="ptxas serializes the loop's tensor instructions (C7515)",
    gain="compiled for an H200: C7515 gone, for the shared memory of one more stage; not timed yet",
    archs=(90,),
    rewrite=rewrite,
    cures=(Defect.SERIALIZED,),
)
