"""Warp specialization: one group of warps loads a loop's tiles, the others multiply (`tl.range(warp_specialize=True)`).

Under the conditions that Triton 3.6 has on Hopper: four warps, every load of the loop through a device-side descriptor,
no run-time choice with an `else` in the loop, and no other loop with a dot that runs in the same launch (with two the
compiler aborts). Where it does not hold, Triton ignores the request in silence or fails; then this does not apply.

Triton 3.6 halves a tile by adding to its descriptor's coordinate, and adds it wherever else that value is used: the
second group of warps then stores or masks rows as far off again. So each coordinate becomes a value of its own.
"""

import libcst as cst
from pgo_agent.agent.moves.analysis import DoesNotApply
from pgo_agent.agent.moves.analysis.cst_format import arguments
from pgo_agent.agent.moves.analysis.cst_util import (
    called,
    change,
    code,
    constexprs,
    contains,
    expression,
    functions,
    module_of,
    names,
    nodes,
    reachable,
    visited,
    writes,
)
from pgo_agent.agent.moves.analysis.launcher_edit import visible
from pgo_agent.agent.moves.analysis.loops import bounds_of, unrolled
from pgo_agent.agent.moves.move import RewriteInput, SourceMove
from pgo_agent.agent.profile.findings import Defect

KEYWORD = "warp_specialize"
LEAST = -(1 << 31)  # of a coordinate


def rewrite(subject: RewriteInput) -> str:
    """Ask for warp specialization. Raises DoesNotApply unless a loop of the kernel meets the conditions."""
    module = module_of(subject.source)
    by_name = functions(module)
    helpers = reachable(module, subject.kernel)[1:]
    if any(contains(by_name[n], "dot") for n in helpers):
        raise DoesNotApply("its dots stand in helper functions")
    if visible(module, subject.kernel).get("tl") != ["triton.language"]:
        raise DoesNotApply("the file does not import triton.language under the name tl")
    function = by_name[subject.kernel]
    if KEYWORD in code(function.body):
        raise DoesNotApply("it is warp-specialized already")
    constants = (constexprs(function) - writes(function.body)) | {"True", "False", "None"}
    reading = {n for n in helpers if any(contains(by_name[x], "load") for x in reachable(module, n))}
    descriptors = _descriptors(function)
    loops = _loops(function.body, constants)
    if not loops:
        raise DoesNotApply("no loop with a dot")
    chosen, reasons = dict[int, cst.BaseExpression](), list[str]()
    for loop, alone in loops:
        try:
            _check(loop, alone, constants)
            _check_loads(loop, descriptors, reading)
            chosen[id(loop)] = _asking(loop)
        except DoesNotApply as e:
            reasons.append(str(e))
    if not chosen:
        raise DoesNotApply(reasons[0])
    return change(
        module, {subject.kernel: visited(visited(function, _Ranges(chosen)), _Apart(descriptors, constants))}
    ).code


def _descriptors(function: cst.FunctionDef) -> set[str]:
    """Names that hold descriptors that the kernel makes, and nothing else."""
    made, other = set[str](), set[str]()
    for node in nodes(function.body):
        if isinstance(node, cst.Assign):
            makes = isinstance(node.value, cst.Call) and code(node.value.func) == "tl.make_tensor_descriptor"
            (made if makes else other).update(writes(node))
        elif isinstance(node, cst.AugAssign | cst.AnnAssign | cst.For):
            other |= names(node.target)
    return made - other


def _loops(body: cst.BaseSuite, constants: set[str]) -> list[tuple[cst.For, bool]]:
    """The outermost loops with dots, and whether each is the only one that its launch runs."""
    branches = [s for s in body.body if contains(s, "dot") and isinstance(s, cst.For | cst.If | cst.While)]
    alone, result = len(branches) == 1, list[tuple[cst.For, bool]]()
    for s in branches:
        if isinstance(s, cst.For):
            result.append((s, alone))
        elif isinstance(s, cst.If):
            static = names(s.test) <= constants
            inner = [*_loops(s.body, constants), *_otherwise(s, constants)]
            result += [(loop, own and alone and static) for loop, own in inner]
    return result


def _otherwise(s: cst.If, constants: set[str]) -> list[tuple[cst.For, bool]]:
    if s.orelse is None:
        return []
    if isinstance(s.orelse, cst.If):
        return _loops(cst.IndentedBlock([s.orelse]), constants)
    return _loops(s.orelse.body, constants)


def _check(loop: cst.For, alone: bool, constants: set[str]) -> None:
    """Raises DoesNotApply unless the form of the loop is one that Triton takes apart."""
    if not alone:
        raise DoesNotApply("another loop with a dot may run in the same launch: Triton 3.6 aborts on two")
    if bounds_of(loop) is None or unrolled(loop):
        raise DoesNotApply("a loop that is not over a range")
    below = list(nodes(loop.body))
    if any(isinstance(n, cst.While) or (isinstance(n, cst.For) and contains(n, "dot")) for n in below):
        raise DoesNotApply("a loop around a loop")
    chooses = [n for n in below if isinstance(n, cst.IfExp) or (isinstance(n, cst.If) and n.orelse is not None)]
    if any(not names(n.test) <= constants for n in chooses):
        raise DoesNotApply("a run-time `else` in the loop")


def _check_loads(loop: cst.For, descriptors: set[str], reading: set[str]) -> None:
    """Raises DoesNotApply unless all that the loop loads goes through descriptors that the kernel makes."""
    calls = [n for n in nodes(loop.body) if isinstance(n, cst.Call)]
    loads = [code(c.func).rpartition(".")[0] for c in calls if called(c) == "load"]
    if not loads or not set(loads) <= descriptors or any(code(c.func) in reading for c in calls):
        raise DoesNotApply("a load of the loop does not go through a descriptor that the kernel makes")


def _asking(loop: cst.For) -> cst.BaseExpression:
    """The loop's range with the request."""
    call = cst.ensure_type(loop.iter, cst.Call)
    return expression(f"tl.range({', '.join([*arguments(call.args), f'{KEYWORD}=True'])})")


class _Ranges(cst.CSTTransformer):
    def __init__(self, chosen: dict[int, cst.BaseExpression]) -> None:
        self.chosen = chosen

    def leave_For(self, original_node: cst.For, updated_node: cst.For) -> cst.For:
        asking = self.chosen.get(id(original_node))
        return updated_node if asking is None else updated_node.with_changes(iter=asking)


class _Apart(cst.CSTTransformer):
    """Gives a coordinate of a descriptor's load a value of its own: the larger of it and a number that none reaches.

    Below that number a tile lies wholly outside of the tensor, with the coordinate or the number: it is zeros either
    way. What a loop counts is left alone: it is not halved.
    """

    def __init__(self, descriptors: set[str], constants: set[str]) -> None:
        self.descriptors, self.constants = descriptors, constants
        self.counted, self.made = list[set[str]](), 0

    def visit_For(self, node: cst.For) -> None:
        self.counted.append(names(node.target))

    def leave_For(self, original_node: cst.For, updated_node: cst.For) -> cst.For:
        self.counted.pop()
        return updated_node

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        of, _, method = code(original_node.func).rpartition(".")
        if of not in self.descriptors or method != "load" or not isinstance(updated_node.args[0].value, cst.List):
            return updated_node
        corner = updated_node.args[0].value
        apart = [e.with_changes(value=self._apart(e.value)) for e in corner.elements]
        first = updated_node.args[0].with_changes(value=corner.with_changes(elements=apart))
        return updated_node.with_changes(args=[first, *updated_node.args[1:]])

    def _apart(self, value: cst.BaseExpression) -> cst.BaseExpression:
        if names(value) <= self.constants or any(names(value) & counted for counted in self.counted):
            return value
        self.made += 1
        return expression(f"tl.maximum({code(value)}, {LEAST + self.made})")


MOVE = SourceMove(
    name="specialize warps",
    symptom="every copy of a tile is surrounded by barriers that all warps wait at",
    gain=(
        "judged on an H200, by case: gemm 0.89 to 1.15x; attention is refused, its launches on the same inputs differ "
        "from one another (Triton 3.6); public figures for attention forward on H100: 424 to 490 TFLOP/s"
    ),
    archs=(90,),
    rewrite=rewrite,
    launch={"num_warps": 4},
    cures=(Defect.COPY_WAIT, Defect.DOT_WAIT),
)
