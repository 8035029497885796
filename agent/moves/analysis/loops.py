"""Loops over ranges, names that they only advance, and names that are used as numbers. Relies on libcst."""

import libcst as cst
from pgo_agent.agent.moves.analysis.cst_util import called, code, keywords, names, nodes, writes

RANGES = ("range", "tl.range", "tl.static_range")
_HINTS = {"num_stages", "loop_unroll_factor", "disallow_acc_multi_buffer", "flatten", "warp_specialize", "disable_licm"}
Bounds = tuple[cst.BaseExpression, cst.BaseExpression, cst.BaseExpression]


def bounds_of(loop: cst.For) -> Bounds | None:
    """Return start, stop and step of a loop over a range; None for another loop."""
    call = loop.iter
    if not isinstance(call, cst.Call) or code(call.func) not in RANGES or loop.orelse or any(a.star for a in call.args):
        return None
    plain = [a.value for a in call.args if a.keyword is None]
    named = keywords(call)
    step = named.pop("step", cst.Integer("1"))
    if set(named) - _HINTS or not 1 <= len(plain) <= 3:
        return None
    low, high = (cst.Integer("0"), plain[0]) if len(plain) == 1 else plain[:2]
    return low, high, plain[2] if len(plain) == 3 else step


def unrolled(loop: cst.For) -> bool:
    """Tell whether the compiler writes the iterations out, one after the other."""
    return isinstance(loop.iter, cst.Call) and called(loop.iter) == "static_range"


def extents(function: cst.FunctionDef) -> set[str]:
    """Return texts that bound a `tl.arange(0, ..)`: such a number is a power of two, hence positive."""
    calls = (n for n in nodes(function.body) if isinstance(n, cst.Call) and called(n) == "arange")
    return {code(c.args[1].value) for c in calls if len(c.args) == 2 and code(c.args[0].value) == "0"}


def advance(name: str, loop: cst.For) -> cst.BaseExpression | None:
    """Return what a loop's body adds to a name, if `name += x` at its top is all that it does to it."""
    body = [s for s in loop.body.body if name in writes(s)]
    if len(body) != 1 or not isinstance(body[0], cst.SimpleStatementLine) or len(body[0].body) != 1:
        return None
    match body[0].body[0]:
        case cst.AugAssign(target=cst.Name(), operator=cst.AddAssign(), value=value):
            return value
        case cst.Assign(
            targets=[cst.AssignTarget(target=cst.Name())],
            value=cst.BinaryOperation(left=cst.Name(value=left), operator=cst.Add(), right=right),
        ) if left == name:
            return right
    return None


def used_as_numbers(function: cst.FunctionDef) -> set[str]:
    """Return names that are multiplied, divided, compared or bound a range: these are no pointers."""
    numbers = set[str]()
    for node in nodes(function.body):
        match node:
            case cst.BinaryOperation(operator=cst.Multiply() | cst.FloorDivide() | cst.Modulo() | cst.Divide()):
                numbers |= {e.value for e in (node.left, node.right) if isinstance(e, cst.Name)}
            case cst.Comparison():
                numbers |= names(node)
            case cst.Call() if called(node) in ("range", "static_range", "cdiv", "arange"):
                numbers |= names(node)
    return numbers
