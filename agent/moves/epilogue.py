"""Store a tile in two halves where it is stored through a descriptor inside a loop: the copy's buffer halves, too.

In a loop over tiles the copy engine (TMA) writes the last tile while the next one is loaded, so its buffer stands in
shared memory beside the pipeline's stages: 64 KiB for a tile of 128 x 256 in fp16, more than a stage. Two stores of
half the width share one buffer of half the size, and one more stage fits. The value is split in registers, and every
element goes to where it went before. That its shape is the block's, and that the width is a power of two, Triton itself
demands of a descriptor's store.

Only there: outside of loops, and for stores through pointers anywhere, the store works in the shared memory that the
pipeline has left. Compiled for an H200, two halves then need exactly as much as one tile. Relies on libcst.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import libcst as cst
import libcst.matchers as m
from pgo_agent.agent.moves.analysis import DoesNotApply
from pgo_agent.agent.moves.analysis.cst_format import addend
from pgo_agent.agent.moves.analysis.cst_util import (  # fmt: skip
    Statement,
    argument,
    called,
    change,
    code,
    constexprs,
    expression,
    fresh,
    functions,
    lines,
    names,
    nodes,
    parameters,
    parents,
    reachable,
    repeatable,
    visited,
    writes,
)
from pgo_agent.agent.moves.analysis.loops import unrolled
from pgo_agent.agent.moves.launch_sites import Config
from pgo_agent.agent.moves.move import SourceMove, Subject
from pgo_agent.agent.profile.findings import Defect

NARROWEST = 32  # columns of a tile that is worth two stores
_MAKE = "make_tensor_descriptor"


@dataclass(frozen=True)
class Store:
    line: cst.SimpleStatementLine
    row: str
    column: cst.BaseExpression
    value: cst.BaseExpression


@dataclass
class Output:
    """A descriptor that is made in the kernel, to store tiles through."""

    name: str
    language: str  # how the file calls triton.language
    block: cst.List | cst.Tuple  # rows and columns of what it stores
    stores: list[Store] = field(default_factory=list)

    @property
    def rows(self) -> str:
        return code(self.block.elements[0].value)

    @property
    def width(self) -> str:
        return code(self.block.elements[1].value)

    @property
    def half(self) -> str:
        return str(int(self.width) // 2) if self.width.isdigit() else f"{self.width} // 2"


def rewrite(subject: Subject) -> str:
    """Halves the stores of every descriptor that has the form. Raises DoesNotApply when none has."""
    module = cst.parse_module(subject.source)
    every = functions(module)
    known = {n: every[n] for n in reachable(module, subject.kernel)}
    reasons, changed = list[str](), dict[str, cst.FunctionDef]()
    for name, function in known.items():
        outputs = list(_outputs(function, subject.config if name == subject.kernel else {}, reasons))
        if outputs:
            changed[name] = visited(function, _Halve(outputs, names(function) | set(every)))
    if not changed:
        raise DoesNotApply(reasons[0] if reasons else _without(known))
    _check_symptom(subject)
    return change(module, changed).code


def _check_symptom(subject: Subject) -> None:
    shared = int(subject.static.get("shared", 0))
    stage = shared // max(int(subject.config.get("num_stages", 3)), 1)  # or less: not all of it is the pipeline's
    if shared and shared + stage <= subject.device.smem_block:
        raise DoesNotApply(f"one more stage fits as it is: {shared} of {subject.device.smem_block} B of shared memory")


def _without(known: Mapping[str, cst.FunctionDef]) -> str:
    """Why there is nothing to halve in functions that make no descriptor to store through."""
    given = {p for f in known.values() for p in parameters(f)}
    calls = [n for f in known.values() for n in nodes(f.body) if isinstance(n, cst.Call)]
    through = {code(c.func).removesuffix(".store") for c in calls if called(c) == "store"}
    if through & given:
        return f"the launcher makes the descriptor {min(through & given)} and decides on the width of its block"
    if not through:
        return "it stores no tile"
    return "it stores through pointers: such a store needs no shared memory beside the pipeline's"


# proof ----------------------------------------------------------------------------------------------------------------


def _outputs(function: cst.FunctionDef, config: Config, reasons: list[str]) -> Iterator[Output]:
    """The descriptors of a function whose stores can be halved. Adds why others cannot."""
    above = parents(function)
    made = m.Assign(targets=[m.AssignTarget(target=m.Name())], value=m.Call(func=m.Attribute(attr=m.Name(_MAKE))))
    for assign in nodes(function.body):
        if not isinstance(assign, cst.Assign) or not m.matches(assign, made):
            continue
        name = code(assign.targets[0].target)
        if f"{name}.store(" in code(function.body):
            try:
                yield _output(name, cst.ensure_type(assign.value, cst.Call), function, config, above)
            except DoesNotApply as e:
                reasons.append(str(e))


def _output(
    name: str, made: cst.Call, function: cst.FunctionDef, config: Config, above: Mapping[int, cst.CSTNode]
) -> Output:
    if _times_written(name, function) != 1 or name in parameters(function):
        raise DoesNotApply(f"the descriptor {name} is made in more than one place")
    block = argument(made, 3, "block_shape")
    if not isinstance(block, cst.List | cst.Tuple) or len(block.elements) != 2:
        raise DoesNotApply(f"the block of the descriptor {name} is not two-dimensional")
    found = Output(name, code(made.func).removesuffix(f".{_MAKE}"), block)
    _check_width(found.width, config.get(found.width, NARROWEST), constexprs(function))
    for use in nodes(function.body):
        if m.matches(use, m.Name(name)) and (store := _use(name, use, above)) is not None:
            found.stores.append(store)
    if not any(_in_loop(s.line, above) for s in found.stores):
        raise DoesNotApply(f"it stores {name} outside of loops: there a store has the shared memory of the pipeline")
    return found


def _times_written(name: str, function: cst.FunctionDef) -> int:
    kinds = cst.Assign | cst.AugAssign | cst.AnnAssign | cst.NamedExpr
    assigned = [n for n in nodes(function.body) if isinstance(n, kinds)]
    loops = [n for n in nodes(function.body) if isinstance(n, cst.For)]
    return sum(name in writes(s) for s in assigned) + sum(name in names(x.target) for x in loops)


def _check_width(width: str, columns: int, constants: set[str]) -> None:
    if not width.isdigit() and width not in constants:
        raise DoesNotApply(f"the width of a block that it stores is not one constant: {width}")
    columns = int(width) if width.isdigit() else columns
    if columns < NARROWEST:
        raise DoesNotApply(f"a tile that it stores is {columns} columns wide: half of it is not worth a copy")


def _use(name: str, use: cst.CSTNode, above: Mapping[int, cst.CSTNode]) -> Store | None:
    """The store that a mention of the descriptor belongs to; None where it is made or asked for its type."""
    attribute = above[id(use)]
    if isinstance(attribute, cst.AssignTarget) or m.matches(
        attribute, m.Attribute(value=m.Name(name), attr=m.Name("dtype"))
    ):
        return None
    call, line = above[id(attribute)], above[id(above[id(above[id(attribute)])])]
    store = m.Attribute(value=m.Name(name), attr=m.Name("store"))
    alone = m.SimpleStatementLine(body=[m.Expr(value=m.Call(func=store))])
    if not m.matches(line, alone) or not isinstance(call, cst.Call):
        raise DoesNotApply(f"the descriptor {name} is used for more than stores")
    at, value = argument(call, 0, "offsets"), argument(call, 1, "value")
    if not isinstance(at, cst.List | cst.Tuple) or len(at.elements) != 2 or value is None:
        raise DoesNotApply(f"where it stores {name} is not a list of row and column")
    row, column = (e.value for e in at.elements)
    if not repeatable(row) or not repeatable(column):
        raise DoesNotApply(f"where it stores {name} may change when it is computed twice")
    return Store(cst.ensure_type(line, cst.SimpleStatementLine), code(row), column, value)


def _in_loop(node: cst.CSTNode, above: Mapping[int, cst.CSTNode]) -> bool:
    while (over := above.get(id(node))) is not None:
        if isinstance(over, cst.For) and not unrolled(over):
            return True
        node = over
    return False


# rewriting ------------------------------------------------------------------------------------------------------------


class _Halve(cst.CSTTransformer):
    """Makes the descriptors half as wide and stores twice through them. Comments stay where they are."""

    def __init__(self, outputs: list[Output], taken: set[str]) -> None:
        self.halves = {id(o.block): o.half for o in outputs}
        self.stores = {id(s.line): (o, s) for o in outputs for s in o.stores}
        self.taken = taken

    def leave_List(self, original_node: cst.List, updated_node: cst.List) -> cst.List:
        half = self.halves.get(id(original_node))
        return updated_node if half is None else updated_node.with_changes(elements=_narrowed(updated_node, half))

    def leave_Tuple(self, original_node: cst.Tuple, updated_node: cst.Tuple) -> cst.Tuple:
        half = self.halves.get(id(original_node))
        return updated_node if half is None else updated_node.with_changes(elements=_narrowed(updated_node, half))

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.FlattenSentinel[Statement]:
        if id(original_node) not in self.stores:
            return updated_node
        first, *rest, last = self._twice(*self.stores[id(original_node)])
        first = first.with_changes(leading_lines=updated_node.leading_lines)
        last = last.with_changes(trailing_whitespace=updated_node.trailing_whitespace)
        return cst.FlattenSentinel([first, *rest, last])

    def _twice(self, o: Output, store: Store) -> list[Statement]:
        stem = code(store.value) if isinstance(store.value, cst.Name) else o.name
        halves, left, right = (fresh(f"{stem}_{part}", self.taken) for part in ("halves", "left", "right"))
        self.taken |= {halves, left, right}
        return lines(
            f"{halves} = {o.language}.reshape({code(store.value)}, [{o.rows}, 2, {o.half}])\n"
            f"{left}, {right} = {o.language}.split({o.language}.permute({halves}, (0, 2, 1)))\n"
            f"{o.name}.store([{store.row}, {code(store.column)}], {left})\n"
            f"{o.name}.store([{store.row}, {addend(store.column)} + {o.half}], {right})\n"
        )


def _narrowed(block: cst.List | cst.Tuple, half: str) -> list[cst.BaseElement]:
    rows, width = block.elements
    return [rows, width.with_changes(value=expression(half))]


MOVE = SourceMove(
    name="store the tile in two halves",
    symptom="the buffer of a stored tile keeps the pipeline from one more stage",
    gain=(
        "262176 to 229408 B at 128 x 256 x 64 and 4 stages, compiled for an H200, not timed yet; on an H100 two "
        "stores with 4 stages and such a tile made fp8 GEMMs 1061 to 1190 TFLOP/s, with other changes (tritonbench "
        "#1149)"
    ),
    archs=(90,),
    rewrite=rewrite,
    launch={"num_stages": 4},
    cures=(Defect.FEW_STAGES, Defect.COPY_WAIT, Defect.EPILOGUE),
)
