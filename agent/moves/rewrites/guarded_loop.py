"""Put a loop with a dot behind a test that it has anything to do: `if K != 0:` around `for k in range(0, K, BLOCK_K):`.

Where a loop may run zero times, ptxas can end up with instructions that set the accumulator among the tensor
instructions, and then serializes them (its note C7515, seen with tiles 256 wide). With the loop in a branch of its own
it does not. A loop only runs where its start and stop differ, whatever its step, so the test changes no value. To peel
the first iteration takes the note away as well, for the shared memory of one more stage.

Relies on libcst. It does not know which of several loops the note is about: all that have the form get a test.
"""

from collections.abc import Mapping

import libcst as cst
from pgo_agent.agent.moves.analysis import DoesNotApply
from pgo_agent.agent.moves.analysis.cst_format import side
from pgo_agent.agent.moves.analysis.cst_util import (
    called,
    change,
    code,
    constexprs,
    expression,
    functions,
    keywords,
    module_of,
    names,
    nodes,
    parameters,
    parents,
    parts,
    reachable,
    repeatable,
    visited,
    writes,
)
from pgo_agent.agent.moves.analysis.loops import bounds_of, unrolled
from pgo_agent.agent.moves.move import RewriteInput, SourceMove
from pgo_agent.agent.profile.cost_model import SERIALIZED
from pgo_agent.agent.profile.findings import Defect

NOTE = "C7515"  # other instructions define accumulator registers between the first and the last wgmma of a stage
_DOTS = ("dot", "dot_scaled")
_TAKEN_APART = {"warp_specialize", "flatten"}  # loops that the compiler merges with what stands around them


def rewrite(subject: RewriteInput) -> str:
    """Put every loop of the kernel and its helpers that has the form behind a test. Raises DoesNotApply if none has."""
    _check_symptom(subject)
    module = module_of(subject.source)
    loops = _Loops(module, subject.kernel)
    for name in loops.known:
        loops.collect(name)
    if not loops.tests:
        raise DoesNotApply(loops.reasons[0] if loops.reasons else "no loop with a dot")
    return change(module, {n: visited(f, _Behind(loops.tests)) for n, f in loops.known.items()}).code


def _check_symptom(subject: RewriteInput) -> None:
    notes = SERIALIZED & set(subject.static.get("notes", ()))
    if subject.static and not notes:
        raise DoesNotApply("ptxas does not serialize its tensor instructions")
    if notes and NOTE not in notes:
        raise DoesNotApply(f"ptxas serializes its tensor instructions for another reason: {', '.join(sorted(notes))}")


class _Loops:
    """The loops with dots of a kernel and its helpers: those that have the form, and why others have not."""

    def __init__(self, module: cst.Module, kernel: str) -> None:
        every = functions(module)
        self.known = {n: every[n] for n in reachable(module, kernel)}
        self.tests, self.reasons = dict[int, str](), list[str]()  # id of a loop -> the test for it

    def collect(self, name: str) -> None:
        above = parents(self.known[name])
        for loop in nodes(self.known[name].body):
            if isinstance(loop, cst.For) and self._multiplies(loop.body, set()):
                try:
                    self.tests[id(loop)] = self._test(loop, name, above)
                except DoesNotApply as e:
                    self.reasons.append(str(e))

    def _multiplies(self, node: cst.CSTNode, seen: set[str]) -> bool:
        """Whether a dot runs in a node, here or in a helper, outside of loops below."""
        if isinstance(node, cst.For | cst.While):
            return False
        if isinstance(node, cst.Call):
            helper = code(node.func)
            new, seen = {helper} & (self.known.keys() - seen), seen | {helper}
            if called(node) in _DOTS or any(self._multiplies(self.known[n].body, seen) for n in new):
                return True
        return any(self._multiplies(part, seen) for part in parts(node))

    def _test(self, loop: cst.For, name: str, above: Mapping[int, cst.CSTNode]) -> str:
        """A test that holds whenever a loop runs. Raises DoesNotApply."""
        function = self.known[name]
        low, high = _bounds(loop)
        if not (names(low) | names(high)) & _run_time(function):
            raise DoesNotApply("ptxas knows how often its loop runs")
        if held := (names(low) | names(high)) & _constants(function):
            raise DoesNotApply(f"a bound of its loop, {min(held)}, is a tl.constexpr, which may hold a tensor")
        _check_variable(code(loop.target), function)
        start, stop = side(low), side(high)
        tests = {f"{start} < {stop}", f"{start} != {stop}", f"{stop} > {start}", f"{stop} != {start}"}
        if standing := tests & _holding(loop, above):
            raise DoesNotApply(f"its loop stands behind `if {min(standing)}:` already")
        return f"{stop} != 0" if start == "0" else f"{start} != {stop}"


# proof ----------------------------------------------------------------------------------------------------------------


def _bounds(loop: cst.For) -> tuple[cst.BaseExpression, cst.BaseExpression]:
    """Start and stop of a loop that may be put behind a test."""
    bounds = bounds_of(loop)
    if bounds is None or not isinstance(loop.target, cst.Name):
        raise DoesNotApply("its loop is not over a range")
    call = cst.ensure_type(loop.iter, cst.Call)
    if unrolled(loop):
        raise DoesNotApply("its loop is unrolled when it is compiled")
    if asked := _TAKEN_APART & set(keywords(call)):
        raise DoesNotApply(f"its loop asks for {' and '.join(sorted(asked))}: a test may undo that")
    if not repeatable(bounds[0]) or not repeatable(bounds[1]):
        raise DoesNotApply(f"a bound of its loop may change when it is computed twice: {code(call)}")
    return bounds[0], bounds[1]


def _run_time(function: cst.FunctionDef) -> set[str]:
    """Names whose values a launch may decide."""
    return (set(parameters(function)) | writes(function.body)) - constexprs(function)


def _constants(function: cst.FunctionDef) -> set[str]:
    """Names that the body annotates as tl.constexpr. Such a one may hold a tensor (of `tl.cdiv`), and Triton then
    compares it outside of the kernel."""
    annotated = (n for n in nodes(function.body) if isinstance(n, cst.AnnAssign))
    return {code(n.target) for n in annotated if code(n.annotation.annotation).endswith("constexpr")}


def _check_variable(variable: str, function: cst.FunctionDef) -> None:
    """Triton wants one type of a name before and after an `if`: the loop's variable must not exist before."""
    assigned = [n for n in nodes(function.body) if isinstance(n, cst.Assign | cst.AugAssign | cst.AnnAssign)]
    if variable in set(parameters(function)).union(*(writes(s) for s in assigned)):
        raise DoesNotApply(f"its loop's variable, {variable}, is assigned elsewhere, too")


def _holding(loop: cst.For, above: Mapping[int, cst.CSTNode]) -> set[str]:
    """The tests behind which a loop stands."""
    tests = set[str]()
    below: cst.CSTNode = loop
    while (node := above.get(id(below))) is not None:
        if isinstance(node, cst.If) and node.body is below:
            tests.add(code(node.test))
        below = node
    return tests


# rewriting ------------------------------------------------------------------------------------------------------------


class _Behind(cst.CSTTransformer):
    """Puts loops behind tests. Comments above a loop stay above."""

    def __init__(self, tests: dict[int, str]) -> None:
        self.tests = tests

    def leave_For(self, original_node: cst.For, updated_node: cst.For) -> cst.For | cst.If:
        test = self.tests.get(id(original_node))
        if test is None:
            return updated_node
        body = cst.IndentedBlock([updated_node.with_changes(leading_lines=[])])
        return cst.If(test=expression(test), body=body, leading_lines=updated_node.leading_lines)


MOVE = SourceMove(
    name="test before the loop",
    symptom="ptxas serializes the loop's tensor instructions (C7515): as far as it knows, the loop may run zero times",
    gain=(
        "judged on an H100: gemm 1.039x in one run; compiled for an H200: C7515 gone in 23 of 23 builds of GEMM loops, "
        "for no shared memory"
    ),
    archs=(90,),
    rewrite=rewrite,
    cures=(Defect.SERIALIZED,),
)
