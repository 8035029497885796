"""Writes kernels that are made by assignments, `k = triton.jit(k)`, as decorated functions, which source moves read.

A file with none is given back as it stands. What a decorator is made of is then computed before the function is, and
nothing else changes: the assignments must follow the function at once, and not mention it beside their one argument.
"""

from collections.abc import Collection

import libcst as cst
from pgo_agent.agent.moves.analysis.cst_util import code, module_of, names

Body = list[cst.BaseStatement]


def as_decorators(source: str, kernels: Collection[str]) -> str:
    """Return the file with decorators for assignments `NAME = MAKER(NAME)` that follow a kernel called NAME."""
    module = module_of(source)
    changed = module.visit(_Decorated(kernels))
    return code(changed) if changed is not module else source


class _Decorated(cst.CSTTransformer):
    def __init__(self, kernels: Collection[str]) -> None:
        self.kernels = kernels

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        body = _decorated(list(updated_node.body), self.kernels)
        return updated_node if body is None else updated_node.with_changes(body=body)

    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        body = _decorated(list(updated_node.body), self.kernels)
        return updated_node if body is None else updated_node.with_changes(body=body)


def _decorated(body: Body, kernels: Collection[str]) -> Body | None:
    """Return statements in which functions have their assignments as decorators; None where there are none."""
    done, changed = Body(), False
    for statement in body:
        maker = _maker(statement, done[-1], kernels) if done else None
        if maker is None:
            done.append(statement)
            continue
        function, changed = cst.ensure_type(done[-1], cst.FunctionDef), True
        done[-1] = function.with_changes(decorators=[cst.Decorator(maker), *function.decorators])
    return done if changed else None


def _maker(
    statement: cst.BaseStatement, before: cst.BaseStatement, kernels: Collection[str]
) -> cst.BaseExpression | None:
    """Return MAKER of `NAME = MAKER(NAME)`, where NAME is the function before it; else None."""
    match statement, before:
        case (
            cst.SimpleStatementLine(
                body=[
                    cst.Assign(
                        targets=[cst.AssignTarget(target=cst.Name(value=name))],
                        value=cst.Call(func=maker, args=[cst.Arg(value=cst.Name(value=given), keyword=None, star="")]),
                    )
                ]
            ),
            cst.FunctionDef(name=cst.Name(value=function)),
        ) if name == given == function and name in kernels and name not in names(maker):
            return maker
    return None
