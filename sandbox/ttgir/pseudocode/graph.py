"""TTGIR with its values resolved: which op made a value, which ops use it, and where in the text that is.

Relies on the scoping of MLIR's text: a region sees what stands before it outside, and a partition of
ttg.warp_specialize only what it captured. A name that nothing defines gives a value without an op. Values that are the
same by definition are one (`Value.same`): what a wait for dots hands through, what a partition captures, and index
arithmetic that is done again for another layout.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from pgo_agent.sandbox.ttgir import types
from pgo_agent.sandbox.ttgir.pseudocode import kinds
from pgo_agent.sandbox.ttgir.tree import Argument, Block, Module, Op, Region


@dataclass(eq=False)
class Value:
    type: str
    node: "Node | None"  # what made it; None for arguments
    index: int  # which result, or which argument of its body
    body: "Body | None"  # where it is defined
    uses: list["Node"] = field(default_factory=list)  # once for each operand
    same: "Value | None" = None

    @property
    def shape(self) -> types.Shaped | None:
        return types.shaped(self.type)

    @property
    def hidden(self) -> bool:
        """A token: it orders copies and waits, which their lines say already."""
        return self.type.endswith("token")


@dataclass(eq=False)
class Node:
    """An op in its place."""

    op: Op
    body: "Body | None"
    place: int  # in the order of `Module.walk`
    operands: list[Value] = field(default_factory=list)
    results: list[Value] = field(default_factory=list)
    bodies: list["Body"] = field(default_factory=list)
    last: int = 0  # place of the last op inside of it
    duplicates: list["Node"] = field(default_factory=list)  # ops that do the same for another layout
    duplicate: bool = False

    @property
    def name(self) -> str:
        return self.op.name

    def operand(self, i: int) -> Value | None:
        return self.operands[i] if i < len(self.operands) else None

    def walk(self) -> Iterator["Node"]:
        yield self
        for body in self.bodies:
            for node in body.nodes:
                yield from node.walk()


@dataclass(eq=False)
class Body:
    """The ops of a block; further blocks of a region are bodies of the same owner."""

    owner: Node
    region: Region
    number: int  # of its region
    block: Block
    arguments: list[Value] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)

    @property
    def end(self) -> Node | None:
        """Its terminator, or what stands last."""
        return self.nodes[-1] if self.nodes else None


Scope = dict[str, Value]


def build(module: Module) -> Node:
    """Return the module's op with all values resolved."""
    builder = _Builder()
    root = builder.node(module.op, None, {})
    _merge(root, {})
    return root


class _Builder:
    def __init__(self) -> None:
        self.count = 0

    def node(self, op: Op, body: Body | None, scope: Scope) -> Node:
        """Return an op with all inside of it. Adds its results to `scope`."""
        node = Node(op, body, self.count)
        self.count += 1
        node.operands = [self._resolve(name, scope) for name in op.operands]
        for value in node.operands:
            value.uses.append(node)
        for number, region in enumerate(op.regions):
            self._region(node, region, number, scope)
        node.last = self.count - 1
        missing = "!ttg.async.token" if op.name in kinds.TOKENS else ""
        result_types = [*op.result_types, *[missing] * len(op.results)]
        node.results = [Value(result_types[i], node, i, body) for i in range(len(op.results))]
        if op.name == "ttng.warp_group_dot_wait":
            for result, operand in zip(node.results, node.operands, strict=False):
                result.same = operand
        scope.update(zip(op.results, node.results, strict=True))
        return node

    def _resolve(self, name: str, scope: Scope) -> Value:
        value = scope.get(name)
        if value is None:
            value = scope[name] = Value("", None, 0, None)
        while value.same is not None:
            value = value.same
        return value

    def _region(self, node: Node, region: Region, number: int, scope: Scope) -> None:
        isolated = region.name.startswith("partition") or node.name in ("module", "tt.func")
        inner: Scope = {} if isolated else dict(scope)
        for i, block in enumerate(region.blocks):
            first = number == 0 and i == 0
            body = Body(node, region, number, block)
            listed = block.arguments or (node.op.defined if first else ())
            body.arguments = [
                Value(self._type(node, a, k, first), None, k, body, same=_captured(node, region, k))
                for k, a in enumerate(listed)
            ]
            inner.update({a.name: v for a, v in zip(listed, body.arguments, strict=True)})
            node.bodies.append(body)
            body.nodes = [self.node(op, body, inner) for op in block.ops]

    def _type(self, node: Node, argument: Argument, k: int, first: bool) -> str:
        """Return the type of an argument; of a loop's, which the text leaves out, that of what it starts with."""
        start = inits(node)
        if argument.type or not first or start is None:
            return argument.type
        counters = node.name == "scf.for"
        if counters and 1 <= k <= len(node.op.result_types):
            return node.op.result_types[k - 1]
        begins = [*node.operands[:1], *start] if counters else start
        return begins[k].type if k < len(begins) else ""


def inits(loop: Node) -> list[Value] | None:
    """Return what a loop carries, as it enters; None for other ops."""
    if loop.name not in kinds.LOOPS:
        return None
    return loop.operands[3:] if loop.name == "scf.for" else loop.operands


def _captured(node: Node, region: Region, k: int) -> Value | None:
    if node.name == "ttg.warp_specialize" and region.name.startswith("partition"):
        return node.operand(k)
    return None


def _merge(node: Node, outer: dict[tuple[object, ...], Node]) -> None:
    """Index arithmetic and constants that differ in nothing but a layout become one value."""
    for body in node.bodies:
        by_key = dict(outer)
        for inner in body.nodes:
            _current(inner)
            key = _key(inner)
            if key is not None and key in by_key:
                _unite(inner, by_key[key])
            elif key is not None:
                by_key[key] = inner
            _merge(inner, by_key)


def _current(node: Node) -> None:
    for i, value in enumerate(node.operands):
        original = value
        while original.same is not None:
            original = original.same
        if original is not value:
            value.uses.remove(node)
            original.uses.append(node)
            node.operands[i] = original


def _key(node: Node) -> tuple[object, ...] | None:
    if node.name not in kinds.FREE | kinds.PURE or len(node.results) != 1 or node.bodies:
        return None
    value = node.results[0]
    shape = value.shape
    element = shape.element if shape else value.type
    if node.name not in kinds.FREE and not (types.bits(element) and element.startswith(("i", "!tt.ptr"))):
        return None
    if shape and shape.kind != "tensor":
        return None
    attributes = tuple((k, v) for k, v in node.op.attributes.items() if k in ("axis", "start", "end"))
    constant = kinds.constant_text(node.op) if node.name == "arith.constant" else ""
    sizes = shape.shape if shape else ()
    return (node.name, constant, node.op.words, attributes, sizes, element, *map(id, node.operands))


def _unite(node: Node, first: Node) -> None:
    node.results[0].same = first.results[0]
    node.duplicate = True
    first.duplicates.append(node)
