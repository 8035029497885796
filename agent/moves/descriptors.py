"""Pointer loads to tensor descriptors: the copy engine (TMA) then computes addresses and masks of a loop's tiles.

For loops with a `tl.dot` whose operands are loaded through pointers. Every two-dimensional load that can be shown to
read an affine tile becomes a load of a device-side descriptor; whether the strides and alignments of a launch allow it
is checked by a heuristic, and the original loop stays for launches that they do not. Reads the same values: a mask
becomes a bound of the descriptor's shape, and without a mask nothing is cut off. Where a kernel loads the same
addresses with a mask in one branch and without in another, the lack of a mask is taken as the promise that it would be
true there. Helpers are inlined first. Tiles that are loaded before the loop and that its dots read become descriptor
loads, too: warp specialization asks for that.
"""

from dataclasses import dataclass, field, replace
from textwrap import indent

import libcst as cst
import libcst.matchers as m
from pgo_agent.agent.moves import inline, prune
from pgo_agent.agent.moves.base import DoesNotApply, SourceMove, Subject
from pgo_agent.agent.moves.flow import Flow, Load
from pgo_agent.agent.moves.host import add_function, add_heuristics, add_parameters, before_launch
from pgo_agent.agent.moves.operands import UNBOUNDED, Operand, operand
from pgo_agent.agent.moves.syntax import (
    Statement,
    called,
    change,
    code,
    contains,
    expression,
    fresh,
    functions,
    lines,
    names,
    visited,
    writes,
)  # fmt: skip

SWITCH = "DESCRIPTORS"
_FITS = '''
def _descriptor_fits(pointer, strides, *moves):
    """Whether a descriptor can address a tile: contiguous in one dimension, in steps of 16 bytes in all others."""
    inner, *outer = sorted(strides)
    steps = [s * pointer.element_size() for s in (*outer, *moves)]
    return inner == 1 and pointer.data_ptr() % 16 == 0 and all(s % 16 == 0 for s in steps)
'''
_SCRATCH = '''
def _descriptor_memory(size, alignment, stream):
    """Device memory for the descriptors that a kernel makes."""
    return torch.empty(size, device="cuda", dtype=torch.int8)
'''


@dataclass
class Plan:
    """What becomes of one outermost loop, or of one statement before the loops."""

    node: cst.For | cst.SimpleStatementLine
    operands: dict[int, Operand] = field(default_factory=dict)  # id of a load's call -> its operand


def rewrite(subject: Subject) -> str:
    """Raises DoesNotApply when no load of a loop with dots can be shown to fit a descriptor."""
    if f"{SWITCH}:" in subject.source or "make_tensor_descriptor" in subject.source:
        raise DoesNotApply("it uses descriptors already")
    source = inline.inline(subject.source, subject.kernel)
    module = cst.parse_module(source)
    function = functions(module).get(subject.kernel)
    if function is None:
        raise DoesNotApply(f"{subject.kernel} is not defined in this file")
    flow = Flow(function)
    plans, reasons = _plans(flow)
    if not plans:
        raise DoesNotApply(next(iter([*reasons, *flow.refused]), "no loop with a dot loads its tiles through pointers"))
    writer = _Writer(plans, names(function) | set(flow.parameters))
    changed = cst.ensure_type(function.visit(writer), cst.FunctionDef)
    switches = {SWITCH: " and ".join(writer.fits), **writer.transposed}
    module = add_function(add_function(module, subject.kernel, _FITS), subject.kernel, _SCRATCH)
    module = change(module, {subject.kernel: add_parameters(changed, list(switches))})
    module = add_heuristics(module, subject.kernel, switches)
    return before_launch(module, subject.kernel, "triton.set_allocator(_descriptor_memory)").code


def _plans(flow: Flow) -> tuple[dict[int, Plan], list[str]]:
    """The outermost loops outside of which all their descriptors can be made, and why other loads stay."""
    plans, reasons = dict[int, Plan](), list[str]()
    multiplied = _multiplied(flow.function)
    for load in flow.loads:
        if load.pointer.rank < 2 or not (_for_dots(load) or _before(load, multiplied)):
            continue
        try:
            found = operand(load, flow)
            node = _outside(load, found)
            plans.setdefault(id(node), Plan(node)).operands[id(load.call)] = found
        except DoesNotApply as e:
            reasons.append(str(e))
    if not any(isinstance(p.node, cst.For) for p in plans.values()):
        return {}, reasons
    for plan in plans.values():
        plan.operands = _promised(plan.operands, {id(x.call): x.pointer.value for x in flow.loads})
    nested = {id(inner) for p in plans.values() for inner in m.findall(p.node, m.For()) if inner is not p.node}
    whole = {i: p for i, p in plans.items() if isinstance(p.node, cst.For) or _all_loads(p.node) <= set(p.operands)}
    return {i: p for i, p in whole.items() if i not in nested}, reasons


def _all_loads(line: cst.CSTNode) -> set[int]:
    return {id(c) for c in m.findall(line, m.Call()) if called(cst.ensure_type(c, cst.Call)) == "load"}


def _multiplied(function: cst.FunctionDef) -> set[str]:
    """Names that the operands of the dots mention."""
    dots = (c for c in m.findall(function, m.Call()) if called(cst.ensure_type(c, cst.Call)) == "dot")
    return set[str]().union(*map(names, dots))


def _for_dots(load: Load) -> bool:
    return any(contains(loop, "dot") for loop in load.loops)


def _before(load: Load, multiplied: set[str]) -> bool:
    """Whether a load outside of loops gives an operand of a dot."""
    return not load.loops and load.line is not None and bool(writes(load.line) & multiplied)


def _promised(operands: dict[int, Operand], addresses: dict[int, object]) -> dict[int, Operand]:
    """Gives loads without a bound that of a load of the same addresses."""
    bounds: dict[object, list[set[str]]] = {}
    for call, o in operands.items():
        for d, known in enumerate(bounds.setdefault(addresses[call], [set(), set()])):
            known.update({o.dimensions[d].bound} - {UNBOUNDED})

    def bounded(call: int, o: Operand) -> Operand:
        known = bounds[addresses[call]]
        first, second = (
            replace(dim, bound=min(k)) if dim.bound == UNBOUNDED and len(k) == 1 else dim
            for dim, k in zip(o.dimensions, known, strict=True)
        )
        return replace(o, dimensions=(first, second))

    return {call: bounded(call, o) for call, o in operands.items()}


def _outside(load: Load, found: Operand) -> cst.For | cst.SimpleStatementLine:
    """The outermost loop around a load, with a dot in it, that leaves alone what the descriptor is made of."""
    if not load.loops and load.line is not None:
        return load.line
    for loop in load.loops:
        if contains(loop, "dot") and not writes(loop) & found.constant:
            return loop
    raise DoesNotApply("its base changes in the loop")


class _Writer(cst.CSTTransformer):
    """Puts `if DESCRIPTORS: the loop with descriptors, else: the loop as it was` in place of each planned loop."""

    def __init__(self, plans: dict[int, Plan], taken: set[str]) -> None:
        self.plans, self.taken = plans, taken
        self.fits: list[str] = []
        self.transposed: dict[str, str] = {}

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self.function = node

    def leave_For(self, original_node: cst.For, updated_node: cst.For) -> cst.BaseStatement:
        plan = self.plans.get(id(original_node))
        if plan is None:
            return updated_node
        creation, changed = self._changed(plan)
        rest = self.function.with_deep_changes(original_node, body=cst.IndentedBlock([]))
        return _either(creation, prune.prune(cst.ensure_type(changed, cst.For), rest), updated_node)

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement:
        plan = self.plans.get(id(original_node))
        if plan is None:
            return updated_node
        creation, changed = self._changed(plan)
        return _either(creation, prune.same_branches(cst.ensure_type(changed, cst.SimpleStatementLine)), updated_node)

    def _changed(self, plan: Plan) -> tuple[list[Statement], cst.CSTNode]:
        """The statements that make the descriptors, and the node that uses them."""
        made: dict[tuple[object, ...], str] = {}
        for o in plan.operands.values():
            if o.key not in made:
                made[o.key] = self._named(o)
        calls = {i: self._load(made[o.key], o) for i, o in plan.operands.items()}
        return self._creation(plan, made), visited(plan.node, _Calls(calls))

    def _named(self, o: Operand) -> str:
        cut = all(d.bound != UNBOUNDED for d in o.dimensions)
        name = fresh(f"{o.pointer.lower().removesuffix('_ptr')}_{'desc' if cut else 'all'}", self.taken)
        self.taken.add(name)
        return name

    def _load(self, name: str, o: Operand) -> cst.BaseExpression:
        rows, columns = (d.offset for d in o.dimensions)
        straight, turned = f"{name}.load([{rows}, {columns}])", f"tl.trans({name}.load([{columns}, {rows}]))"
        if o.inner is not None:
            return expression(straight if o.inner == 1 else turned)
        return expression(f"{turned} if {self._switch(o)} else {straight}")

    def _creation(self, plan: Plan, made: dict[tuple[object, ...], str]) -> list[Statement]:
        shapes = [d.bound for o in plan.operands.values() for d in o.dimensions]
        text = f"{UNBOUNDED}: tl.constexpr = 2147483647  # where the load had no mask\n" if UNBOUNDED in shapes else ""
        for o in {o.key: o for o in plan.operands.values()}.values():
            self._check(o)
            straight, turned = (f"{made[o.key]} = {_make(o, inner)}\n" for inner in (1, 0))
            if o.inner is not None:
                text += straight if o.inner == 1 else turned
            else:
                text += f"if {self._switch(o)}:\n{indent(turned, '    ')}else:\n{indent(straight, '    ')}"
        return lines(text)

    def _switch(self, o: Operand) -> str:
        """The parameter that says that an operand is contiguous in its first dimension."""
        name = f"{o.pointer.upper()}_TRANSPOSED"
        self.transposed[name] = f"{_argument(o, 1)} != 1"
        return name

    def _check(self, o: Operand) -> None:
        strides = f"({_argument(o, 0)}, {_argument(o, 1)})"
        given = ", ".join([f'args["{o.pointer}"]', strides, *o.checked])
        text = f"_descriptor_fits({given})"
        if text not in self.fits:
            self.fits.append(text)


def _either(creation: list[Statement], changed: cst.For | cst.SimpleStatementLine, original: Statement) -> cst.If:
    above = getattr(original, "leading_lines", ())
    return cst.If(
        test=cst.Name(SWITCH),
        body=cst.IndentedBlock([*creation, changed.with_changes(leading_lines=[])]),
        orelse=cst.Else(body=cst.IndentedBlock([original.with_changes(leading_lines=[])])),
        leading_lines=above,
    )


def _argument(o: Operand, d: int) -> str:
    """A stride as the launch knows it."""
    stride = o.dimensions[d].stride
    return str(stride) if stride.is_number else code(_Arguments.of(str(stride)))


class _Arguments(cst.CSTTransformer):
    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        return expression(f'args["{updated_node.value}"]')

    @staticmethod
    def of(text: str) -> cst.BaseExpression:
        return visited(expression(text), _Arguments())


def _make(o: Operand, inner: int) -> str:
    outer, last = o.dimensions[1 - inner], o.dimensions[inner]
    shape, strides = f"[{outer.bound}, {last.bound}]", f"[{outer.stride}, 1]"
    layout = f"shape={shape}, strides={strides}, block_shape=[{outer.extent}, {last.extent}]"
    return f"tl.make_tensor_descriptor(\n    {o.base},\n    {layout},\n)"


class _Calls(cst.CSTTransformer):
    """Puts expressions in the places of calls, by the identity of their nodes."""

    def __init__(self, calls: dict[int, cst.BaseExpression]) -> None:
        self.calls = calls

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        return self.calls.get(id(original_node), updated_node)


MOVE = SourceMove(
    name="load through tensor descriptors",
    symptom="addresses and masks of pointer loads cost registers and instructions in the hot loop",
    gain="public figures for a GEMM on Hopper: fp16 13 %, fp8 4 %; for attention it opens further moves",
    archs=(90, 100, 120),
    rewrite=rewrite,
)
