"""Pointer loads to tensor descriptors: the copy engine (TMA) then computes addresses and masks of a loop's tiles.

For loops with a `tl.dot` whose operands are loaded through pointers. Every two-dimensional load that can be shown to
read an affine tile becomes a load of a device-side descriptor; whether the strides and alignments of a launch allow it
is checked by a heuristic, and the original loop stays for launches that they do not. Reads the same values: a mask
becomes a bound of the descriptor's shape, and without a mask nothing is cut off. Where compile-time constants decide
whether a load is masked, they decide the bound. Helpers are inlined first, and rows that wrap around
(`unwrap_modulo.py`) become masked. Tiles that are loaded before the loop and that its dots read become descriptor
loads, too: warp specialization asks for that.
"""

from textwrap import indent

import libcst as cst
from pgo_agent.agent.moves.analysis import DoesNotApply, dead_code, inline, unwrap_modulo
from pgo_agent.agent.moves.analysis.cst_util import (
    Statement,
    change,
    contains,
    expression,
    fresh,
    functions,
    lines,
    module_of,
    names,
    reachable,
    visited,
)
from pgo_agent.agent.moves.analysis.dataflow import IndexFlow
from pgo_agent.agent.moves.analysis.descriptor_operand import UNBOUNDED, Operand
from pgo_agent.agent.moves.analysis.descriptor_plan import DescriptorPlan, planned
from pgo_agent.agent.moves.analysis.launcher_edit import (
    add_function,
    add_heuristics,
    add_parameters,
    before_launch,
    check_names,
)
from pgo_agent.agent.moves.analysis.poly_text import in_kernel
from pgo_agent.agent.moves.analysis.stored_pointers import written
from pgo_agent.agent.moves.move import RewriteInput, SourceMove
from pgo_agent.agent.profile.findings import Defect

SWITCH = "DESCRIPTORS"
_FITS = '''
def _descriptor_fits(pointer, strides, block, *steps):
    """Whether a descriptor can address a tile: contiguous in one dimension, in steps of 16 bytes in all others."""
    if not hasattr(pointer, "element_size") or pointer.dtype == torch.bool or 1 not in strides:
        return False
    size, inner = pointer.element_size(), strides.index(1)
    outer = strides[1 - inner]
    whole = [pointer.data_ptr(), *(size * n for n in (outer, *steps))]
    rows, columns = block[1 - inner], block[inner]
    fits = size <= 4 and outer > 0 and size * columns >= 16 and size * rows * columns % 128 == 0
    return fits and all(n % 16 == 0 for n in whole)
'''
_SCRATCH = '''
def _descriptor_memory(size, alignment, stream):
    """Device memory for the descriptors that a kernel makes."""
    return torch.empty(size, device="cuda", dtype=torch.int8)
'''


def rewrite(subject: RewriteInput) -> str:
    """Load through descriptors. Raises DoesNotApply where no load of a loop with dots is shown to fit one."""
    before = module_of(subject.source)
    if any(contains(functions(before)[n], "make_tensor_descriptor") for n in reachable(before, subject.kernel)):
        raise DoesNotApply("it uses descriptors already")
    check_names(before, subject.kernel)
    module = prepared(subject)
    function = functions(module)[subject.kernel]
    flow = IndexFlow(function)
    plans, reasons = planned(flow, written(module, function))
    if not plans:
        raise DoesNotApply(next(iter([*reasons, *flow.refused]), "no loop with a dot loads its tiles through pointers"))
    writer = _Writer(plans, names(function) | set(flow.parameters))
    changed = visited(function, writer)
    switches = writer.switches()
    module = add_function(add_function(module, subject.kernel, _FITS), subject.kernel, _SCRATCH)
    module = change(module, {subject.kernel: add_parameters(changed, list(switches))})
    module = add_heuristics(module, subject.kernel, switches)
    return before_launch(module, subject.kernel, "triton.set_allocator(_descriptor_memory)").code


def prepared(subject: RewriteInput) -> cst.Module:
    """Return the file with helpers inside of the kernel, and with masks where rows past the end wrapped around."""
    module = module_of(inline.inline(subject.source, subject.kernel))
    return change(module, {subject.kernel: unwrap_modulo.unwrapped(functions(module)[subject.kernel])})


class _Writer(cst.CSTTransformer):
    """Puts `if DESCRIPTORS: the loop with descriptors, else: the loop as it was` in place of each planned loop."""

    def __init__(self, plans: dict[int, DescriptorPlan], taken: set[str]) -> None:
        self.plans, self.taken = plans, taken
        self.switch = self._fresh(SWITCH)
        self.fits: list[str] = []
        self.sizes: dict[str, None] = {}
        self.transposed: dict[str, str] = {}  # text of the test -> parameter

    def switches(self) -> dict[str, str]:
        """Return the parameters that the launch computes."""
        sizes = list(self.sizes)
        least = f"min({', '.join(sizes)})" if len(sizes) > 1 else "".join(sizes)
        tests = [*self.fits, *([f"{least} >= 0"] if sizes else [])]
        return {self.switch: "\n            and ".join(tests)} | {name: text for text, name in self.transposed.items()}

    def _fresh(self, wanted: str) -> str:
        name = fresh(wanted, self.taken)
        self.taken.add(name)
        return name

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self.function = node

    def leave_For(self, original_node: cst.For, updated_node: cst.For) -> cst.BaseStatement:
        plan = self.plans.get(id(original_node))
        if plan is None:
            return updated_node
        creation, changed = self._changed(plan)
        rest = self.function.with_deep_changes(original_node, body=cst.IndentedBlock([]))
        return self._either(creation, dead_code.prune(cst.ensure_type(changed, cst.For), rest), updated_node)

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement:
        plan = self.plans.get(id(original_node))
        if plan is None:
            return updated_node
        creation, changed = self._changed(plan)
        line = dead_code.same_branches(cst.ensure_type(changed, cst.SimpleStatementLine))
        return self._either(creation, line, updated_node)

    def _changed(self, plan: DescriptorPlan) -> tuple[list[Statement], cst.CSTNode]:
        """The statements that make the descriptors, and the node that uses them."""
        creation, calls = self._made(plan)
        before = dict[int, list[Statement]]()
        for inner in plan.inner:
            before[id(inner.node)], more = self._made(inner)
            calls |= more
        return creation, visited(plan.node, _Calls(calls, before))

    def _made(self, plan: DescriptorPlan) -> tuple[list[Statement], dict[int, cst.BaseExpression]]:
        """The statements that make descriptors, and what takes the places of loads."""
        made: dict[tuple[object, ...], str] = {}
        for o in plan.operands.values():
            if o.key not in made:
                made[o.key] = self._fresh(f"{o.pointer.lower().removesuffix('_ptr')}_desc")
        return self._creation(plan, made), {i: self._load(made[o.key], o) for i, o in plan.operands.items()}

    def _load(self, name: str, o: Operand) -> cst.BaseExpression:
        rows, columns = (d.offset for d in o.dimensions)
        straight, turned = f"{name}.load([{rows}, {columns}])", f"tl.trans({name}.load([{columns}, {rows}]))"
        if o.inner is not None:
            return expression(straight if o.inner == 1 else turned)
        return expression(f"({turned} if {self._turned(o)} else {straight})")

    def _creation(self, plan: DescriptorPlan, made: dict[tuple[object, ...], str]) -> list[Statement]:
        text = ""
        for o in plan.operands.values():
            self._check(o)
        for o in {o.key: o for o in plan.operands.values()}.values():
            straight, turned = (f"{made[o.key]} = {_make(o, inner)}\n" for inner in (1, 0))
            if o.inner is not None:
                text += straight if o.inner == 1 else turned
            else:
                text += f"if {self._turned(o)}:\n{indent(turned, '    ')}else:\n{indent(straight, '    ')}"
        return lines(text)

    def _turned(self, o: Operand) -> str:
        """The parameter that says that an operand is contiguous in its first dimension."""
        text = f"{o.strides[1]} != 1"
        if text not in self.transposed:
            self.transposed[text] = self._fresh(f"{o.pointer.upper()}_TRANSPOSED")
        return self.transposed[text]

    def _check(self, o: Operand) -> None:
        pairs = (f"({', '.join(pair)})" for pair in (o.strides, o.block))
        given = ", ".join([f'args["{o.pointer}"]', *pairs, *o.steps])
        text = f"_descriptor_fits({given})"
        if text not in self.fits:
            self.fits.append(text)
        self.sizes |= dict.fromkeys(o.sizes)

    def _either(
        self, creation: list[Statement], changed: cst.For | cst.SimpleStatementLine, original: Statement
    ) -> cst.If:
        return cst.If(
            test=cst.Name(self.switch),
            body=cst.IndentedBlock([*creation, changed.with_changes(leading_lines=[])]),
            orelse=cst.Else(body=cst.IndentedBlock([original.with_changes(leading_lines=[])])),
            leading_lines=getattr(original, "leading_lines", ()),
        )


def _make(o: Operand, inner: int) -> str:
    outer, last = o.dimensions[1 - inner], o.dimensions[inner]
    shape, strides = f"[{outer.bound}, {last.bound}]", f"[{in_kernel(outer.stride)}, 1]"
    note = "  # 2**31 - 1: no mask cuts off there" if UNBOUNDED in shape else ""
    block = f"[{outer.extent}, {last.extent}]"
    parts = f"    shape={shape},{note}\n    strides={strides},\n    block_shape={block},\n"
    return f"tl.make_tensor_descriptor(\n    {o.base},\n{parts})"


class _Calls(cst.CSTTransformer):
    """Puts expressions in the places of calls, and statements before loops, by the identity of their nodes."""

    def __init__(self, calls: dict[int, cst.BaseExpression], before: dict[int, list[Statement]]) -> None:
        self.calls, self.before = calls, before

    def leave_For(self, original_node: cst.For, updated_node: cst.For) -> cst.For | cst.FlattenSentinel[Statement]:
        first = self.before.get(id(original_node))
        return updated_node if first is None else cst.FlattenSentinel([*first, updated_node])

    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> cst.Assign:
        bare = updated_node.value.with_changes(lpar=[], rpar=[])
        return updated_node.with_changes(value=bare) if id(original_node.value) in self.calls else updated_node

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        return self.calls.get(id(original_node), updated_node)


MOVE = SourceMove(
    name="load through tensor descriptors",
    symptom="addresses and masks of pointer loads cost registers and instructions in the hot loop",
    gain=(
        "judged on an H200, by case: gemm 0.95 to 1.09x, fa_fwd 0.98 to 1.06x, fa_bwd 0.91 to 1.09x; public "
        "figures for a GEMM on Hopper: fp16 13 %, fp8 4 %"
    ),
    archs=(90, 100, 120),
    rewrite=rewrite,
    cures=(
        Defect.COPY_WAIT,
        Defect.SPILL,  # addresses take registers
        Defect.FEW_STAGES,
        Defect.NARROW,
        Defect.UNCOALESCED,
        Defect.BANK_CONFLICTS,
        Defect.INDEXING,
    ),
)
