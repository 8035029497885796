"""Matrices whose rows do not start at multiples of 16 bytes are copied to ones whose rows do, and read by TMA there.

Neither the copy engine nor asynchronous copies can read such rows: every load in the loop is then a few bytes wide and
waited for. A copy reads and writes the matrix once, the tiles of a product read it many times. This is
`descriptors.py`'s rewrite, and in the launcher, before the launch, `a = _rows_aligned(a)`, which gives back what is
aligned as it is. For that the kernel must find its operand by the strides of `a` alone, as the launch passes them, and
nothing else of the launcher may hang on where `a` lies.
"""

import re
from collections.abc import Iterator, Mapping

import libcst as cst
import libcst.matchers as m
from pgo_agent.agent.findings import Defect
from pgo_agent.agent.moves import descriptors
from pgo_agent.agent.moves.base import SourceMove, Subject
from pgo_agent.agent.rewriting import DoesNotApply, inline
from pgo_agent.agent.rewriting.flow import Flow
from pgo_agent.agent.rewriting.host import add_function, before_launch, launches
from pgo_agent.agent.rewriting.operands import Operand
from pgo_agent.agent.rewriting.syntax import (
    called,
    code,
    constexprs,
    contains,
    functions,
    keywords,
    names,
    nodes,
    parameters,
    parts,
    reachable,
    writes,
)
from pgo_agent.agent.rewriting.tiles import mentions
from pgo_agent.agent.rewriting.written import written

_ROWS = '''
def _rows_aligned(x):
    """The matrix with every row at a multiple of 16 bytes: x itself where it is like that, else a copy."""
    if x.dim() != 2 or 1 not in x.stride():
        return x
    inner = 1 if x.stride(1) == 1 else 0
    rows, columns, step = x.shape[1 - inner], x.shape[inner], 16 // x.element_size()
    if rows * columns == 0 or (x.data_ptr() % 16 == 0 and x.stride(1 - inner) % step == 0):
        return x
    whole = torch.empty((rows, triton.cdiv(columns, step) * step), device=x.device, dtype=x.dtype)
    _copy_rows[(rows,)](x, whole, columns, x.stride(1 - inner), whole.stride(0), BLOCK=1024)
    return whole[:, :columns] if inner == 1 else whole[:, :columns].T
'''
# What the compiler knows of strides would make it give a thread several elements: rows of x allow one at a time.
_COPY = """
@triton.jit(do_not_specialize=["stride", "stride_to"])
def _copy_rows(source, to, columns, stride, stride_to, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    for first in range(0, columns, BLOCK):
        offs = first + tl.arange(0, BLOCK)
        values = tl.load(source + row * stride + offs, mask=offs < columns)
        tl.store(to + row * stride_to + offs, values, mask=offs < columns)
"""
_PARAMETER = re.compile(r'args\["(\w+)"\]')
_LIKE = {"empty_like", "zeros_like"}  # give something new
_OF_SHAPE = {"shape", "size", "dtype", "device", "dim", "ndim", "numel", "element_size", "is_cuda", "new_empty"}


def rewrite(subject: Subject) -> str:
    """Raises DoesNotApply where no row that is out of line slows a loop, or where the launcher hides what it passes."""
    if subject.statics and not any(_waits(s) for s in subject.statics):
        raise DoesNotApply("copies run ahead of the dots in every case: its rows are aligned")
    tensors = _tensors(subject)
    changed = cst.parse_module(descriptors.rewrite(subject))
    for name in tensors:
        changed = before_launch(changed, subject.kernel, f"{name} = _rows_aligned({name})")
    return add_function(add_function(changed, subject.kernel, _COPY), subject.kernel, _ROWS).code


def _waits(static: Mapping[str, object]) -> bool:
    return bool(static["dots"]) and not static["async_copies"]


def _tensors(subject: Subject) -> list[str]:
    """The launcher's names for the matrices that descriptors read."""
    module = cst.parse_module(subject.source)
    kernel = functions(module)[subject.kernel]
    launcher, call = _launch(module, subject.kernel)
    passed = _passed(kernel, call)
    found = [_tensor(o, passed) for o in _operands(subject)]
    for name in dict.fromkeys(found):
        _check_uses(launcher, call, name)
    return list(dict.fromkeys(found))


def _operands(subject: Subject) -> list[Operand]:
    """What the kernel reads by descriptors. Raises DoesNotApply where something of it is read in another way, too."""
    module = cst.parse_module(inline.inline(subject.source, subject.kernel))
    kernel = functions(module)[subject.kernel]
    flow = Flow(kernel)
    plans, _ = descriptors.planned(flow, written(module, kernel))
    found = {i: o for p in plans.values() for q in (p, *p.inner) for i, o in q.operands.items()}
    pointers = {o.pointer for o in found.values()}
    others = [x for x in flow.loads if id(x.call) not in found and mentions(x.pointer) & pointers]
    hidden = any(contains(functions(module)[n], "make_block_ptr") for n in reachable(module, subject.kernel))
    if others or hidden or flow.refused:
        raise DoesNotApply("the kernel reads in ways that are not followed, too")
    return list(found.values())


def _launch(module: cst.Module, kernel: str) -> tuple[cst.FunctionDef, cst.Call]:
    found = [(f, call) for f in functions(module).values() for call in launches(f, kernel)]
    if len(found) != 1:
        raise DoesNotApply(f"{kernel} is launched in {len(found)} places")
    return found[0]


def _passed(kernel: cst.FunctionDef, call: cst.Call) -> dict[str, str]:
    """Parameter -> text of what the launch passes. `*x.stride()` counts as two: x is a matrix, or stays as it is."""
    named, constant = keywords(call), constexprs(kernel)
    open_places = [p for p in parameters(kernel) if p not in named]
    texts = [text for a in call.args if a.keyword is None for text in _texts(a)]
    places = open_places[: len(texts)]
    plain = [p for p in open_places if p not in constant]  # others the launch may leave to a configuration
    if len(texts) > len(open_places) or places not in (plain, open_places):
        raise DoesNotApply("the launch passes arguments that are not followed")
    return dict(zip(places, texts, strict=True)) | {n: code(v) for n, v in named.items()}


def _texts(a: cst.Arg) -> list[str]:
    strides = m.Call(func=m.Attribute(value=m.Name(), attr=m.Name("stride")), args=[])
    if a.star == "*" and m.matches(a.value, strides):
        return [f"{code(a.value).removesuffix('()')}({n})" for n in (0, 1)]
    if a.star:
        raise DoesNotApply("the launch passes arguments that are not followed")
    return [code(a.value)]


def _tensor(o: Operand, passed: Mapping[str, str]) -> str:
    """The launcher's name of an operand, whose strides the launch passes as that tensor has them."""
    name = passed[o.pointer]
    dimensions = [_dimension(s, name, passed) for s in o.strides]
    known = [d for d in dimensions if d is not None]
    if not name.isidentifier() or len(set(known)) != len(known) or not known:
        raise DoesNotApply(f"{o.pointer} is not found by the strides of the tensor that is passed as such")
    return name


def _dimension(stride: str, tensor: str, passed: Mapping[str, str]) -> int | None:
    """Of which dimension a stride is; None for 1, which the contiguous one has in the copy, too."""
    if stride == "1":
        return None
    parameter = _PARAMETER.fullmatch(stride)
    given = passed.get(parameter[1], "") if parameter else ""
    if not (found := re.fullmatch(rf"{re.escape(tensor)}\.stride\((-[12]|[01])\)", given)):
        raise DoesNotApply(f"the launch does not pass a stride of {tensor} as such")
    return int(found[1]) % 2


def _check_uses(launcher: cst.FunctionDef, call: cst.Call, name: str) -> None:
    """Raises DoesNotApply where something but the launch sees where a tensor lies, or that it is another one now."""
    if name not in parameters(launcher) and name not in writes(launcher.body):
        raise DoesNotApply(f"{name} is no variable of the launcher")
    ordered = list(nodes(launcher.body))
    statement = next(s for s in ordered if isinstance(s, cst.SimpleStatementLine) and call in list(nodes(s)))
    if any(isinstance(n, cst.For | cst.While | cst.FunctionDef) and statement in list(nodes(n)) for n in ordered):
        raise DoesNotApply("it is launched in a loop, or by an inner function")
    begin = ordered.index(statement)
    before, after = ordered[:begin], ordered[begin + len(list(nodes(statement))) :]
    if any(isinstance(n, cst.Name) and n.value == name for n in after):
        raise DoesNotApply(f"{name} is used after the launch, too")
    harmless = {id(n) for node in before for n in _harmless(node, name)}
    if any(isinstance(n, cst.Name) and n.value == name and id(n) not in harmless for n in before):
        raise DoesNotApply(f"something else of the launcher may hang on where {name} lies")


def _harmless(node: cst.CSTNode, name: str) -> Iterator[cst.CSTNode]:
    """Mentions in a node that leave nothing behind but a shape, a type, or the name itself."""
    match node:
        case cst.Attribute(value=cst.Name(value=found) as mention, attr=cst.Name(value=of)) if found == name:
            yield from [mention] if of in _OF_SHAPE else []
        case cst.Attribute(attr=mention) | cst.Arg(keyword=cst.Name() as mention):
            yield mention
        case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=found))]) if found == name:
            yield from nodes(node)
        case cst.Call() if called(node) in _LIKE:
            yield from (a.value for a in node.args if names(a.value) == {name} and not parts(a.value))


MOVE = SourceMove(
    name="align rows, load through tensor descriptors",
    symptom="rows that do not start at multiples of 16 bytes are read a few bytes at a time, and waited for",
    gain=(
        "not judged yet; a model's rewrite of that kind: 4.58x on an H200 for a GEMM whose rows have an odd number of "
        "elements; it takes the memory of a copy"
    ),
    archs=(90, 100, 120),
    rewrite=rewrite,
    cures=(Defect.NARROW, Defect.FEW_STAGES, Defect.SPILL),  # narrow loads need many registers
)
