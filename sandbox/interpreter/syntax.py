"""`and`, `or`, `not` and loops in kernels with the meaning of Triton's compiler; its interpreter uses Python's.

The variable of a loop over a range is a tensor, which has a type and methods. Operands of logical operators that are
tensors are all evaluated, and combined element by element. Relies on the interpreter rewriting each kernel with
`FunctionRewriter.ast_transformer`, in a module where its own names can be reached.
"""

import ast
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from triton import language as tl
from triton.runtime import interpreter

_BOTH, _NOT, _COUNTED = "_pgo_agent_logical", "_pgo_agent_not", "_pgo_agent_counted"


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


def counted(*bounds: Any, **_options: Any) -> Iterator[Any]:
    """Yield the numbers of a range as tensors: of 32 bits, or of 64 where a bound has or needs as many."""
    wide = any(isinstance(b, tl.tensor) and b.dtype.primitive_bitwidth > 32 for b in bounds)
    numbers = range(*(operator.index(getattr(b, "value", b)) for b in bounds))
    ends = (numbers.start, numbers.stop)
    wide = wide or not all(-(1 << 31) <= n < 1 << 31 for n in ends)
    kind, dtype = (tl.int64, np.int64) if wide else (tl.int32, np.int32)
    for n in numbers:
        yield tl.tensor(interpreter.TensorHandle(np.array([n], dtype=dtype), kind), kind)


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

    def visit_For(self, node: ast.For) -> Any:  # noqa: N802
        self.generic_visit(node)
        if isinstance(node.iter, ast.Call) and ast.unparse(node.iter.func).rpartition(".")[2] == "range":
            node.iter.func = ast.copy_location(ast.Name(id=_COUNTED, ctx=ast.Load()), node.iter.func)
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:  # noqa: N802
        node.operand = self.visit(node.operand)
        return ast.copy_location(_call(_NOT, node.operand), node) if isinstance(node.op, ast.Not) else node


def _call(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(func=ast.Name(id=name, ctx=ast.Load()), args=list(args), keywords=[])


def install() -> None:
    """Replace the transformer. Call it before a candidate is imported."""
    setattr(interpreter, _BOTH, logical)
    setattr(interpreter, _NOT, negated)
    setattr(interpreter, _COUNTED, counted)
    interpreter.FunctionRewriter.ast_transformer = Transformer()
