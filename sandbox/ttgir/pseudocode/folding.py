"""Which ops have a line of their own, and which are written into the lines that use them.

An op with a side effect always has one. A pure one has one when several lines use it, when its only use is in a loop
or branch that it stands outside of (it is done there, not inside), and when the expression would get too long.
"""

from dataclasses import dataclass, field

from pgo_agent.sandbox.ttgir.pseudocode import kinds
from pgo_agent.sandbox.ttgir.pseudocode.graph import Node, Value, inits

OPERATORS, ADDED = 6, 40  # most in one line, without and with what an address adds up, which is shortened
MANY = 1000  # sites of a value that are kept, and the last one
REPEATED = 1  # operators of integer arithmetic that is rather written twice than named


@dataclass
class Folding:
    inlined: set[Node] = field(default_factory=set)
    addresses: set[Node] = field(default_factory=set)  # of the inlined, those that only compute an address
    sites: dict[Value, list[Node]] = field(default_factory=dict)  # nodes in whose lines a value is written
    operators: dict[Node, int] = field(default_factory=dict)  # folded into a line


def fold(root: Node) -> Folding:
    """Decide for every op below `root` which line it stands in; users before what they use."""
    folding = Folding()
    for node in reversed(list(root.walk())):
        for value in node.results:
            _gather(folding, value)
        if _inline(folding, node):
            folding.inlined.add(node)
    for node in root.walk():
        for body in node.bodies:
            for value in body.arguments:
                _gather(folding, value)
    return folding


def _gather(folding: Folding, value: Value) -> None:
    sites: list[Node] = []
    for user in value.uses:
        if user.duplicate:
            continue
        sites += folding.sites.get(user.results[0], []) if user in folding.inlined else [user]
    last = [max(sites, key=lambda n: n.place)] if len(sites) > MANY else []
    folding.sites[value] = list(dict.fromkeys(sites[:MANY] + last)) if last else sites


def _inline(folding: Folding, node: Node) -> bool:
    if node.duplicate or not kinds.pure(node.op) or len(node.results) != 1:
        return node.duplicate
    value = node.results[0]
    sites = folding.sites[value]
    address = _address(folding, node, value)
    if address:
        folding.addresses.add(node)
    if node.name in kinds.FREE:
        return True
    if not sites or node.name in kinds.EXCHANGES:
        return False
    if address and len(sites) == 1:
        return _near(node, sites[0]) and _room(folding, sites[0], ADDED)
    if _small(node, value):
        return True
    return len(sites) == 1 and _near(node, sites[0]) and _fits(folding, node, value, sites[0])


def _address(folding: Folding, node: Node, value: Value) -> bool:
    """Pointer arithmetic, and integers that are used in nothing else."""
    if node.name == "tt.addptr":
        return True
    users = [u for u in value.uses if not u.duplicate]
    return _integer(value) and bool(users) and all(u in folding.addresses for u in users)


def _integer(value: Value) -> bool:
    shape = value.shape
    element = shape.element if shape else value.type
    return element.startswith(("i", "index"))


def _small(node: Node, value: Value) -> bool:
    """An operator or two of scalar integers: shorter than a name for it."""
    return (
        _integer(value)
        and value.shape is None
        and node.name not in ("arith.select", "arith.cmpi", "arith.cmpf")
        and _count(node) <= REPEATED
    )


def _count(node: Node, most: int = REPEATED + 1) -> int:
    """Operators that folding would write, up to `most`."""
    count = 1
    for value in node.operands:
        if count >= most:
            break
        inner = value.node
        while inner is not None and inner.name in kinds.WIDENING:
            inner = inner.operands[0].node if inner.operands else None
        if inner is not None and inner.name in kinds.PURE:
            count += _count(inner, most - count)
    return count


def _near(node: Node, site: Node) -> bool:
    return node.body is site.body


def _fits(folding: Folding, node: Node, value: Value, site: Node) -> bool:
    if (
        (site.name in kinds.TERMINATORS and value.type != "i1")
        or site.name == "ttg.warp_specialize"
        or _starts(site, value)
    ):
        return False
    tensor = value.shape is not None and not _integer(value)
    if tensor and not _rounding(node) and not _elementwise(site):
        return False
    return _room(folding, site, OPERATORS)


def _room(folding: Folding, site: Node, most: int) -> bool:
    """Return whether a line has room for one more operator, and take that room."""
    count = folding.operators.get(site, 0)
    if count < most:
        folding.operators[site] = count + 1
    return count < most


def _starts(site: Node, value: Value) -> bool:
    return any(v is value for v in inits(site) or ())


def _elementwise(site: Node) -> bool:
    return kinds.pure(site.op) and site.name not in kinds.EXCHANGES


def _rounding(node: Node) -> bool:
    """A change of type, of something that has a name."""
    return node.name in ("arith.truncf", "arith.extf", "tt.fp_to_fp")
