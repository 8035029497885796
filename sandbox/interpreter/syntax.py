"""`and`, `or` and `not` in kernels with the meaning of Triton's compiler; its interpreter uses Python's.

Operands that are tensors are all evaluated, and combined element by element. Relies on the interpreter rewriting each
kernel with `FunctionRewriter.ast_transformer`, in a module where its own names can be reached.
"""

import ast
from collections.abc import Callable
from typing import Any

from triton import language as tl
from triton.runtime import interpreter

_BOTH, _NOT = "_pgo_agent_logical", "_pgo_agent_not"


def logical(name: str, *operands: Callable[[], Any]) -> Any:
    """Combine operands; `name`: logical_and or logical_or. A deciding plain value ends it, as in the compiler."""
    tensors, last = [], None
    for operand in operands:
        last = operand()
        if isinstance(last, tl.tensor):
            tensors.append(last)
        elif bool(last) == (name == "logical_or"):
            return last
    if not tensors:
        return last
    result = tensors[-1]
    for t in reversed(tensors[:-1]):
        result = getattr(t, name)(result)
    return result


def negated(operand: Any) -> Any:
    """Negate a value, a block element by element."""
    return operand.__not__() if isinstance(operand, tl.tensor) and operand.shape else not operand


class Transformer(interpreter.ASTTransformer):
    """Triton's transformer, which also rewrites the logical operators."""

    def visit_Assign(self, node: ast.Assign) -> Any:  # noqa: N802 (ast's name)
        node.value = self.visit(node.value)
        return super().visit_Assign(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:  # noqa: N802
        if any(isinstance(n, ast.NamedExpr) for n in ast.walk(node)):
            return self.generic_visit(node)  # it would bind its name inside of a lambda
        name = "logical_and" if isinstance(node.op, ast.And) else "logical_or"
        empty = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        operands = [ast.Lambda(args=empty, body=self.visit(v)) for v in node.values]
        return ast.copy_location(_call(_BOTH, ast.Constant(value=name), *operands), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:  # noqa: N802
        node.operand = self.visit(node.operand)
        return ast.copy_location(_call(_NOT, node.operand), node) if isinstance(node.op, ast.Not) else node


def _call(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(func=ast.Name(id=name, ctx=ast.Load()), args=list(args), keywords=[])


def install() -> None:
    """Replace the transformer. Call it before a candidate is imported."""
    setattr(interpreter, _BOTH, logical)
    setattr(interpreter, _NOT, negated)
    interpreter.FunctionRewriter.ast_transformer = Transformer()
