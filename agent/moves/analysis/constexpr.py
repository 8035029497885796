"""What Triton's compiler knows of an expression before a kernel runs: literals, compile-time parameters, types.

An assignment turns such a value into a number of the running kernel, with a type of its own; passing it to a function
does not. Relies on libcst. What is neither surely known to the compiler nor surely of the running kernel is neither.
"""

import libcst as cst
from pgo_agent.agent.moves.analysis.cst_util import called, code, names, nodes

_LITERALS = cst.Integer | cst.Float | cst.SimpleString
_RUNNING = {"program_id", "num_programs", "load", "arange", "zeros"}
_KNOWN = ("shape", "value", "numel", "type", "handle", "dtype", "element_ty")


def is_literal(e: cst.BaseExpression) -> bool:
    """Tell whether an expression is a number, a string, True, False or None."""
    return isinstance(e, _LITERALS) or (isinstance(e, cst.Name) and e.value in ("True", "False", "None"))


def constant(e: cst.BaseExpression, compile_time: set[str]) -> bool:
    """Tell whether an expression is made of literals, names that the compiler knows and plain operations only."""
    if isinstance(e, cst.Attribute):
        return code(e).startswith("tl.") and code(e).count(".") == 1  # a type, as tl.float16
    if isinstance(e, cst.Call):
        return code(e.func) == "float" and len(e.args) == 1 and isinstance(e.args[0].value, cst.SimpleString)
    if isinstance(e, cst.Name):
        return is_literal(e) or e.value in compile_time
    if isinstance(e, cst.UnaryOperation):
        return constant(e.expression, compile_time)
    if isinstance(e, cst.BinaryOperation):
        return constant(e.left, compile_time) and constant(e.right, compile_time)
    return is_literal(e)


def runs(e: cst.BaseExpression, running: set[str]) -> bool:
    """Tell whether an expression is a value of the running kernel for sure: it reads one of these names, or memory."""
    calls = {called(n) for n in nodes(e) if isinstance(n, cst.Call)}
    if not names(e) & running and not calls & _RUNNING:
        return False
    for node in nodes(e):
        attribute = isinstance(node, cst.Attribute) and node.attr.value
        if isinstance(node, cst.IfExp | cst.BooleanOperation | cst.Tuple | cst.List | cst.Lambda | cst.NamedExpr):
            return False
        if isinstance(node, cst.Index) and code(node.value) != "None":
            return False  # an element of a tuple may be anything
        if attribute in _KNOWN:
            return False
    return isinstance(e, cst.BinaryOperation | cst.UnaryOperation | cst.Comparison | cst.Call | cst.Subscript)
