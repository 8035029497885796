"""Copies matrices whose rows do not start at multiples of 16 bytes to ones whose rows do, and reads those by TMA.

Neither the copy engine nor asynchronous copies can read such rows: every load in the loop is then a few bytes wide and
waited for. A copy reads and writes the matrix once, the tiles of a product read it many times. This is the rewrite of
`tma_descriptors.py`, and before the launch `a = _rows_aligned(a)`, which returns an aligned matrix as it is. The kernel
must find its operand by the strides of `a` alone, as the launch passes them, and use these for addresses only; and
nothing else of the launcher may depend on where `a` lies (`launch_args.py`).
"""

import re
from collections.abc import Mapping

import libcst as cst
from pgo_agent.agent.moves.analysis import DoesNotApply
from pgo_agent.agent.moves.analysis.cst_util import (
    called,
    code,
    constexprs,
    contains,
    functions,
    module_of,
    names,
    nodes,
    parts,
    reachable,
    strings,
    visited,
)
from pgo_agent.agent.moves.analysis.dataflow import IndexFlow
from pgo_agent.agent.moves.analysis.def_use import reached, sources
from pgo_agent.agent.moves.analysis.descriptor_operand import Operand
from pgo_agent.agent.moves.analysis.descriptor_plan import planned
from pgo_agent.agent.moves.analysis.index_algebra import mentions
from pgo_agent.agent.moves.analysis.launch_args import LaunchArgs, check_fresh, check_replaceable, launch_of
from pgo_agent.agent.moves.analysis.launcher_edit import add_function, before_launch
from pgo_agent.agent.moves.analysis.stored_pointers import written
from pgo_agent.agent.moves.move import RewriteInput, SourceMove
from pgo_agent.agent.moves.rewrites import tma_descriptors
from pgo_agent.agent.profile.findings import Defect

_ROWS = '''
def _rows_aligned(x):
    """The matrix with every row at a multiple of 16 bytes: a copy, or x itself where it is like that already, or where
    something may lie beside or between its rows that a kernel reads, too."""
    if not isinstance(x, torch.Tensor) or x.dim() != 2 or 1 not in x.stride():
        return x
    inner = 1 if x.stride(1) == 1 else 0
    rows, columns, step = x.shape[1 - inner], x.shape[inner], 16 // x.element_size()
    dense = rows == 1 or x.stride(1 - inner) == columns
    alone = dense and x.untyped_storage().nbytes() == rows * columns * x.element_size()
    if not alone or rows == 0 or columns % step == 0 or rows * (columns + step) >= 2**31:
        return x
    whole = torch.empty((rows, triton.cdiv(columns, step) * step), device=x.device, dtype=x.dtype)
    _copy_rows[(rows,)](x, whole, columns, x.stride(1 - inner), whole.stride(0), BLOCK=1024)
    return whole[:, :columns] if inner == 1 else whole[:, :columns].T
'''
# What the compiler knows of strides would make it give a thread several elements: rows of x allow one at a time. Behind
# each row are zeros: a kernel that masks one operand of two multiplies what it reads there by zero.
_COPY = """
@triton.jit(do_not_specialize=["stride", "stride_to"])
def _copy_rows(source, to, columns, stride, stride_to, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    for first in range(0, stride_to, BLOCK):
        offs = first + tl.arange(0, BLOCK)
        values = tl.load(source + row * stride + offs, mask=offs < columns, other=0)
        tl.store(to + row * stride_to + offs, values, mask=offs < stride_to)
"""
_PARAMETER = re.compile(r'args\["(\w+)"\]')
_HARMLESS = {"load", "to", "cast", "multiple_of", "max_contiguous", "assume"}  # calls that strides may be given to


def rewrite(subject: RewriteInput) -> str:
    """Align rows. Raises DoesNotApply where none out of line slows a loop, or where values cannot be shown to stay."""
    if subject.statics and not any(_waits(s) for s in subject.statics):
        raise DoesNotApply("copies run ahead of the dots in every case: its rows are aligned")
    tensors = _tensors(subject)
    changed = module_of(tma_descriptors.rewrite(subject))
    for name in tensors:
        changed = before_launch(changed, subject.kernel, f"{name} = _rows_aligned({name})")
    return add_function(add_function(changed, subject.kernel, _COPY), subject.kernel, _ROWS).code


def _waits(static: Mapping[str, object]) -> bool:
    return bool(static["dots"]) and not static["async_copies"]


def _tensors(subject: RewriteInput) -> list[str]:
    """The launcher's names for the matrices that descriptors read, each of which another of its values may replace."""
    launch = launch_of(module_of(subject.source), subject.kernel)
    kernel = _Kernel(subject)
    tensors = list(dict.fromkeys(_tensor(o, launch) for o in kernel.operands))
    for name in tensors:
        check_replaceable(launch, name)
        if not {p for p, text in launch.passed.items() if text == name} <= {o.pointer for o in kernel.operands}:
            raise DoesNotApply(f"{name} is read in ways that are not followed, too")
    for parameter in sorted(kernel.written & launch.passed.keys()):
        check_fresh(launch, parameter)
    if "pre_hook" in subject.source:
        raise DoesNotApply("a function that runs before the kernel may see its arguments")
    strides = {p for name in tensors for p in launch.strides(name)}
    kernel.check(strides)
    if strings(launch.launcher) & {*strides, *launch.passed}:
        raise DoesNotApply("the launcher looks at arguments of the launch")
    return tensors


def _tensor(o: Operand, launch: LaunchArgs) -> str:
    """The launcher's name of an operand that is found by that tensor's strides, which the launch passes as they are."""
    name = launch.passed[o.pointer]
    own = launch.strides(name)
    strides = [_PARAMETER.sub(r"\1", s) for s in o.strides if s != "1"]  # the contiguous one is 1 in the copy, too
    if not name.isidentifier() or not strides or len({own.get(s, s) for s in strides}) != len(strides):
        raise DoesNotApply(f"{o.pointer} is not found by the strides of the tensor that is passed as such")
    if unknown := [s for s in strides if s not in own]:
        raise DoesNotApply(f"the launch does not pass a stride of {name} as such: {unknown[0]}")
    return name


class _Kernel:
    """What a kernel reads by descriptors, and what its strides are used for."""

    def __init__(self, subject: RewriteInput) -> None:
        module = tma_descriptors.prepared(subject)
        self.function = functions(module)[subject.kernel]
        self.flow = IndexFlow(self.function)
        targets = written(module, self.function)
        self.written = targets - _stepping(self.function) - set(constexprs(self.function))  # pointers, no numbers
        plans, _ = planned(self.flow, targets)
        self.found = {i: o for p in plans.values() for q in (p, *p.inner) for i, o in q.operands.items()}
        self.operands = list(self.found.values())
        below = list(nodes(self.function.body))
        calls = [n for n in below if isinstance(n, cst.Call) and called(n) == "load"]
        helpers = [functions(module)[n] for n in reachable(module, subject.kernel)[1:]]
        followed = {id(x.call) for x in self.flow.loads}
        if self.flow.refused or {id(c) for c in calls} != followed or any(contains(f, "load") for f in helpers):
            raise DoesNotApply("the kernel reads in ways that are not followed, too")
        if any(contains(f, "make_block_ptr") or contains(f, "pointer_type") for f in (self.function, *helpers)):
            raise DoesNotApply("the kernel makes pointers of its own, too")

    def _check_others(self, given: set[str]) -> None:
        others = [x for x in self.flow.loads if id(x.call) not in self.found]
        if any(mentions(x.pointer) & given for x in others):
            raise DoesNotApply("the kernel reads in ways that are not followed, too")

    def check(self, strides: set[str]) -> None:
        """Raise DoesNotApply unless pointers and strides serve to find operands, and nothing else hangs on them."""
        pointers = {o.pointer for o in self.operands}
        derived = _derived(self.function.body, strides)
        self._check_others(pointers | derived)
        if not all(_plain_heuristics(d, strides | pointers) for d in self.function.decorators):
            raise DoesNotApply("the launch decides something by a stride, or in a way that is not followed")
        for o in self.operands:
            own = _words(*o.strides)
            if _words(o.base, *(d.offset for d in o.dimensions)) & derived - own:
                raise DoesNotApply(f"{o.pointer} is found by another tensor's strides, too")
            if re.search(r"-|//|%", o.base):
                raise DoesNotApply(f"{o.pointer} is found by more than whole rows and columns")
        body = _without_signs(self.function.body, strides)
        derived = _derived(body, strides | pointers)
        if any(_computed_from(deciding) & derived for n in nodes(body) for deciding in _deciding(n)):
            raise DoesNotApply("the kernel uses a stride or a pointer for more than addresses")


def _words(*texts: str) -> set[str]:
    return set(re.findall(r"\w+", " ".join(texts)))


def _stepping(function: cst.FunctionDef) -> set[str]:
    """Names that are multiplied or divided: no pointer is."""
    operators = cst.Multiply | cst.FloorDivide | cst.Modulo | cst.Divide
    operations = [
        n for n in nodes(function.body) if isinstance(n, cst.BinaryOperation) and isinstance(n.operator, operators)
    ]
    return {side.value for n in operations for side in (n.left, n.right) if isinstance(side, cst.Name)}


def _plain_heuristics(decorator: cst.Decorator, hidden: set[str]) -> bool:
    """Whether a decorator computes nothing from these arguments of a launch: all that it looks at is written out."""
    call = decorator.decorator
    name = called(call) if isinstance(call, cst.Call) else code(call).rpartition(".")[2]
    if name != "heuristics" or not isinstance(call, cst.Call):
        return name in ("jit", "autotune") and not strings(decorator) & hidden
    if len(call.args) != 1 or not isinstance(call.args[0].value, cst.Dict):
        return False
    return all(_plain_lambda(e.value, hidden) for e in call.args[0].value.elements)


def _plain_lambda(value: cst.BaseExpression, hidden: set[str]) -> bool:
    """Whether it is `lambda args: ...` that uses its argument as `args["name"]` alone, and none of these names."""
    if not isinstance(value, cst.Lambda) or len(value.params.params) != 1:
        return False
    own = value.params.params[0].name.value
    used = [n for n in nodes(value.body) if isinstance(n, cst.Subscript) and code(n.value) == own]
    looked = [_looked_up(n) for n in used]
    mentions = sum(isinstance(n, cst.Name) and n.value == own for n in nodes(value.body))
    return mentions == len(used) and None not in looked and not hidden & set(looked)


def _looked_up(subscript: cst.Subscript) -> str | None:
    """The name in `args["name"]`."""
    match subscript.slice:
        case [cst.SubscriptElement(slice=cst.Index(value=cst.SimpleString() as name))]:
            return str(name.evaluated_value)
    return None


def _derived(body: cst.CSTNode, strides: set[str]) -> set[str]:
    """Strides or pointers, and the names of what is computed from them, but for what is loaded from there."""
    computed = sources(body, _computed_from)
    return strides | {name for name in computed if reached({name}, computed) & strides}


def _computed_from(value: cst.CSTNode) -> set[str]:
    loaded = isinstance(value, cst.Call) and called(value) == "load"
    if loaded or (isinstance(value, cst.Attribute) and value.attr.value in ("dtype", "type")):
        return set()
    return names(value) if isinstance(value, cst.Name) else set[str]().union(*map(_computed_from, parts(value)))


def _deciding(node: cst.CSTNode) -> list[cst.BaseExpression]:
    """Expressions in a node whose value decides what is computed, or how often, or is a result."""
    match node:
        case cst.If() | cst.While() | cst.IfExp():
            return [node.test]
        case cst.Comparison():
            return [node]
        case cst.Call() if called(node) not in _HARMLESS or not isinstance(node.func, cst.Attribute):
            return [node]
        case _:
            return []


def _without_signs(body: cst.BaseSuite, strides: set[str]) -> cst.CSTNode:
    """The body without what it says of a stride that holds for any: that it is not negative."""
    forms = {f"{s} {sign} 0" for s in strides for sign in (">", ">=")}
    return visited(body, _Signs(forms))


class _Signs(cst.CSTTransformer):
    def __init__(self, forms: set[str]) -> None:
        self.forms = forms

    def leave_Comparison(self, original_node: cst.Comparison, updated_node: cst.Comparison) -> cst.BaseExpression:
        plain = code(original_node.with_changes(lpar=[], rpar=[]))
        return cst.Name("True") if plain in self.forms else updated_node


MOVE = SourceMove(
    name="align rows, load through tensor descriptors",
    symptom="rows that do not start at multiples of 16 bytes are read a few bytes at a time, and waited for",
    gain=(
        "judged on an H200: 1.34x over four GEMM cases, 3.4x in the one whose rows have an odd number of elements and "
        "0.97 to 1.05x in the others; it takes the memory of a copy"
    ),
    archs=(90, 100, 120),
    rewrite=rewrite,
    cures=(Defect.NARROW, Defect.FEW_STAGES, Defect.SPILL),  # narrow loads need many registers
)
