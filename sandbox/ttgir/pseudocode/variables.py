"""Which values share a variable: a loop's argument, what it starts with, what is yielded to it and what it leaves.

Values share one where no value is overwritten while a line still needs it (intervals of places in the text, as in
register allocation by linear scan; Poletto and Sarkar, 1999). Where they cannot, the printer writes the assignment.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from pgo_agent.sandbox.ttgir.pseudocode import kinds
from pgo_agent.sandbox.ttgir.pseudocode.folding import Folding
from pgo_agent.sandbox.ttgir.pseudocode.graph import Body, Node, Value, inits

# From where a value is given to where it is last needed, in half places: an op uses and gives at 2 x place; what a loop
# carries is handed over between 2 x and 2 x + 1 of its last op, where all of it must be there at a time.
Span = tuple[int, int]


@dataclass(eq=False)
class Variable:
    values: list[Value]
    spans: list[Span] = field(default_factory=list)

    def apart(self, other: "Variable") -> bool:
        """Return whether no value of one is needed while a value of the other holds the name."""
        return not any(a < d and c < b for a, b in self.spans for c, d in other.spans)


Variables = dict[Value, Variable]


def assign(root: Node, folding: Folding) -> Variables:
    """Return a variable for every value that a line must name."""
    variables: Variables = {}
    for node in root.walk():
        for body in node.bodies:
            for value in body.arguments:
                _begin(variables, folding, value, _entered(node, body))
        for value in carries(node):
            if value in variables:
                variables[value].spans.append((2 * node.last, 2 * node.last + 1))
        if node not in folding.inlined:
            for value in node.results:
                _begin(variables, folding, value, 2 * node.last + bool(node.bodies))
    for pairs in (_results, _pairs):
        for node in root.walk():
            for first, second in pairs(node):
                _unite(variables, first, second)
    return variables


def _begin(variables: Variables, folding: Folding, value: Value, at: int) -> None:
    if value.same is None and not value.hidden:
        last = max((_until(value, n) for n in folding.sites.get(value, [])), default=at)
        variables[value] = Variable([value], [(at, max(at, last))])


def _entered(node: Node, body: Body) -> int:
    """From where the arguments of a body are there."""
    first = body is node.bodies[0] or not body.nodes
    return 2 * node.place if first else 2 * body.nodes[0].place - 1


def _until(value: Value, user: Node) -> int:
    """Up to where a use needs the value: behind the end of a loop that the value is older than."""
    last, body = 2 * user.place, user.body
    while body is not None and body is not value.body:
        if body.owner.name in kinds.LOOPS or body.owner.name == "ttg.warp_specialize":
            last = 2 * body.owner.last + 1
        body = body.owner.body
    return last


def _results(node: Node) -> Iterator[tuple[Value, Value]]:
    """Yield a loop's argument with its result: they are one variable, whatever else is."""
    if node.name == "scf.for":
        yield from zip(carries(node), node.results, strict=False)


def _pairs(node: Node) -> Iterator[tuple[Value | None, Value | None]]:
    """Yield what had best be one variable, the most urgent first."""
    yield from zip(carries(node), inits(node) or (), strict=False)
    for body in node.bodies:
        yield from departures(body)
    if node.name in kinds.DOTS and node.results:
        yield node.operand(2), node.results[0]


def carries(loop: Node) -> list[Value]:
    """Return the arguments of a loop's body that it carries from one iteration to the next; none of other ops."""
    if loop.name not in kinds.LOOPS or not loop.bodies:
        return []
    return loop.bodies[0].arguments[1:] if loop.name == "scf.for" else loop.bodies[0].arguments


def departures(body: Body) -> list[tuple[Value, Value]]:
    """Return what the end of a body hands over: (the value that takes it, the value that is given)."""
    end, owner = body.end, body.owner
    if end is None:
        return []
    if end.name == "scf.condition":  # of a while: goes on to its second region, or leaves
        after = owner.bodies[1].arguments if len(owner.bodies) > 1 else []
        return [p for takers in (after, owner.results) for p in zip(takers, end.operands[1:], strict=False)]
    if end.name != "scf.yield":
        return list(zip(owner.results, end.operands, strict=False)) if end.name == "ttg.warp_yield" else []
    takers = carries(owner) if owner.name in kinds.LOOPS else owner.results
    return list(zip(takers, end.operands, strict=False))


def _unite(variables: Variables, first: Value | None, second: Value | None) -> None:
    a, b = variables.get(first) if first else None, variables.get(second) if second else None
    if a is None or b is None or a is b or not _alike(a.values[0], b.values[0]) or not a.apart(b):
        return
    a.values += b.values
    a.spans += b.spans
    for value in b.values:
        variables[value] = a


def _alike(a: Value, b: Value) -> bool:
    """Of one type; no parameter of a function, which stays what it is."""
    parameter = any(v.body is not None and v.node is None and v.body.owner.name == "tt.func" for v in (a, b))
    first, second = a.shape, b.shape
    if first is None or second is None:
        return not parameter and a.type == b.type
    return not parameter and (first.kind, first.shape, first.element) == (second.kind, second.shape, second.element)
