"""Warp specialization: one group of warps loads a loop's tiles, the others multiply (`tl.range(warp_specialize=True)`).

Under the conditions that Triton 3.6 has on Hopper: four warps, every load of the loop through a device-side descriptor,
no run-time `if` with an `else` in the loop, and no other loop with a dot that runs in the same launch (with two the
compiler aborts). Where it does not hold, Triton ignores the request in silence or fails; then this does not apply.
"""

import libcst as cst
import libcst.matchers as m
from pgo_agent.agent.moves.base import DoesNotApply, SourceMove, Subject
from pgo_agent.agent.moves.flow import bounds_of
from pgo_agent.agent.moves.syntax import called, change, code, contains, expression, functions, names, reachable

KEYWORD = "warp_specialize"


def rewrite(subject: Subject) -> str:
    """Raises DoesNotApply unless a loop of the kernel meets the conditions."""
    module = cst.parse_module(subject.source)
    known = functions(module)
    if any(contains(known[n], "dot") for n in reachable(module, subject.kernel)[1:]):
        raise DoesNotApply("its dots stand in helper functions")
    function, constants = known[subject.kernel], _constexprs(known[subject.kernel])
    if KEYWORD in code(function.body):
        raise DoesNotApply("it is warp-specialized already")
    loops = _loops(function.body, constants)
    if not loops:
        raise DoesNotApply("no loop with a dot")
    chosen, reasons = dict[int, cst.BaseExpression](), list[str]()
    for loop, alone in loops:
        try:
            chosen[id(loop)] = _specialized(loop, alone, constants)
        except DoesNotApply as e:
            reasons.append(str(e))
    if not chosen:
        raise DoesNotApply(reasons[0])
    changed = cst.ensure_type(function.visit(_Ranges(chosen)), cst.FunctionDef)
    return change(module, {subject.kernel: changed}).code


def _constexprs(function: cst.FunctionDef) -> set[str]:
    """Parameters that are compile-time constants: an `if` on them alone leaves one branch."""
    listed = function.params.params
    return {p.name.value for p in listed if p.annotation and code(p.annotation.annotation).endswith("constexpr")}


def _loops(body: cst.BaseSuite, constants: set[str]) -> list[tuple[cst.For, bool]]:
    """The outermost loops with dots, and whether each is the only one that its launch runs."""
    branches = [s for s in body.body if contains(s, "dot") and isinstance(s, cst.For | cst.If | cst.While)]
    alone, found = len(branches) == 1, list[tuple[cst.For, bool]]()
    for s in branches:
        if isinstance(s, cst.For):
            found.append((s, alone))
        elif isinstance(s, cst.If):
            static = names(s.test) <= constants
            inner = [*_loops(s.body, constants), *_otherwise(s, constants)]
            found += [(loop, own and alone and static) for loop, own in inner]
    return found


def _otherwise(s: cst.If, constants: set[str]) -> list[tuple[cst.For, bool]]:
    if s.orelse is None:
        return []
    if isinstance(s.orelse, cst.If):
        return _loops(cst.IndentedBlock([s.orelse]), constants)
    return _loops(s.orelse.body, constants)


def _specialized(loop: cst.For, alone: bool, constants: set[str]) -> cst.BaseExpression:
    """The loop's range with the request. Raises DoesNotApply."""
    if not alone:
        raise DoesNotApply("another loop with a dot runs in the same launch: Triton 3.6 aborts on two")
    if bounds_of(loop) is None:
        raise DoesNotApply("a loop that is not over a range")
    if any(contains(inner, "dot") for inner in m.findall(loop.body, m.For())):
        raise DoesNotApply("a loop around a loop")
    loads = [c for c in m.findall(loop.body, m.Call()) if called(cst.ensure_type(c, cst.Call)) == "load"]
    if not loads or any(code(c.func).startswith("tl.") for c in loads):  # type: ignore[attr-defined]
        raise DoesNotApply("a load of the loop does not go through a descriptor")
    for branch in m.findall(loop.body, m.If()):
        if branch.orelse is not None and not names(branch.test) <= constants:  # type: ignore[attr-defined]
            raise DoesNotApply("a run-time `else` in the loop")
    call = cst.ensure_type(loop.iter, cst.Call)
    given = [code(a).rstrip(", ") for a in call.args]
    return expression(f"tl.range({', '.join([*given, f'{KEYWORD}=True'])})")


class _Ranges(cst.CSTTransformer):
    def __init__(self, chosen: dict[int, cst.BaseExpression]) -> None:
        self.chosen = chosen

    def leave_For(self, original_node: cst.For, updated_node: cst.For) -> cst.For:
        found = self.chosen.get(id(original_node))
        return updated_node if found is None else updated_node.with_changes(iter=found)


MOVE = SourceMove(
    name="specialize warps",
    symptom="every copy of a tile is surrounded by barriers that all warps wait at",
    gain="public figures for attention forward on H100: 424 to 490 TFLOP/s; on an H200 one such kernel (D=64) gave NaN",
    archs=(90,),
    rewrite=rewrite,
    launch={"num_warps": 4},
)
