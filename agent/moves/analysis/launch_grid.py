"""The grid of a launch, read from host code and said in the kernel's own terms.

A grid is a tuple, or a lambda or small function of the meta-parameters that gives one; it stands in the launch or is
assigned once in the same function. Arguments are matched to parameters by position and keyword; what a star passes is
counted from both ends. Relies on libcst; what cannot be matched raises DoesNotApply.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import libcst as cst
from pgo_agent.agent.moves.analysis import DoesNotApply
from pgo_agent.agent.moves.analysis.cst_util import (
    bindings,
    code,
    expression,
    functions,
    keywords,
    names,
    nodes,
    parameters,
    visited,
)
from pgo_agent.agent.moves.analysis.def_use import target
from pgo_agent.agent.moves.analysis.launcher_edit import launches

_OPERATORS = cst.Add | cst.Subtract | cst.Multiply | cst.FloorDivide


@dataclass(frozen=True)
class Grid:
    """One launch of a kernel."""

    function: str  # host function that launches
    call: cst.Call
    meta: str  # name of the lambda's argument; empty: the grid is plain
    dimensions: tuple[cst.BaseExpression, ...]  # host expressions
    arguments: Mapping[str, str]  # text of an argument -> the parameter that receives it
    constants: Mapping[str, str]  # numbers of the file that the function sees, by name


def grids(module: cst.Module, kernel: str, given: set[str]) -> list[Grid]:
    """Return all launches of a kernel in the file. `given`: parameters that heuristics or configurations give."""
    by_name, result = functions(module), list[Grid]()
    for name, function in by_name.items():
        for call in launches(function, kernel):
            meta, dimensions = _dimensions(cst.ensure_type(call.func, cst.Subscript), function)
            arguments = _arguments(call, [p for p in parameters(by_name[kernel]) if p not in given])
            result.append(Grid(name, call, meta, dimensions, arguments, _constants(module)))
    if not result:
        raise DoesNotApply(f"no function of the file launches {kernel}[grid](...)")
    if len(result) != len(launches(module, kernel)):
        raise DoesNotApply(f"{kernel} is launched outside of the functions that are followed, too")
    return result


def _constants(module: cst.Module) -> dict[str, str]:
    """Return whole numbers that a name at the top of the file stands for, and nothing else in any scope."""
    lines = [s for s in module.body if isinstance(s, cst.SimpleStatementLine)]
    given = [n for s in lines for n in s.body if isinstance(n, cst.Assign)]
    found = {name: code(n.value) for n in given if (name := target(n)) and isinstance(n.value, cst.Integer)}
    count = Counter(bindings(module))
    return {n: text for n, text in found.items() if count[n] == 1}


def given_elsewhere(function: cst.FunctionDef, configured: set[str]) -> set[str]:
    """Return parameters that no launch passes: those of heuristics, and of the configurations."""
    heuristics = [x for x in function.decorators if "heuristics" in code(x.decorator)[:24]]
    dicts = [n for x in heuristics for n in nodes(x) if isinstance(n, cst.Dict)]
    keys = {code(e.key) for d in dicts for e in d.elements if isinstance(e, cst.DictElement)}
    return configured | {k.strip("\"'") for k in keys}


def _dimensions(launch: cst.Subscript, function: cst.FunctionDef) -> tuple[str, tuple[cst.BaseExpression, ...]]:
    parts = [e.slice.value for e in launch.slice if isinstance(e.slice, cst.Index)]
    grid: cst.BaseExpression = parts[0] if len(parts) == 1 else cst.Tuple([cst.Element(p) for p in parts])
    if isinstance(grid, cst.Name):
        grid = _assigned(grid.value, function)
    meta = ""
    if isinstance(grid, cst.Lambda):
        if len(grid.params.params) != 1:
            raise DoesNotApply("a grid that is a lambda of several arguments")
        meta, grid = grid.params.params[0].name.value, grid.body
    if not isinstance(grid, cst.Tuple) or not 1 <= len(grid.elements) <= 3:
        raise DoesNotApply(f"a grid that is not a tuple: {code(grid)}")
    return meta, tuple(e.value for e in grid.elements)


def _assigned(name: str, function: cst.FunctionDef) -> cst.BaseExpression:
    """What a local name stands for: its only assignment, or the function of that name as a lambda."""
    values = [n.value for n in nodes(function) if isinstance(n, cst.Assign) and target(n) == name]
    for definition in (n for n in nodes(function.body) if isinstance(n, cst.FunctionDef) and n.name.value == name):
        returned = [n.value for n in nodes(definition) if isinstance(n, cst.Return)]
        if len(returned) == 1 and returned[0] is not None and len(definition.body.body) == 1:
            values.append(cst.Lambda(definition.params, returned[0]))
    if len(values) != 1:
        raise DoesNotApply(f"the grid {name} is not assigned once in the function that launches")
    return values[0]


def _arguments(call: cst.Call, positional: list[str]) -> dict[str, str]:
    """Text of an argument -> parameter, for all that can be matched."""
    named = {name: code(value) for name, value in keywords(call).items()}
    listed = [p for p in positional if p not in named]
    plain = [a for a in call.args if a.keyword is None]
    stars = [i for i, a in enumerate(plain) if a.star]
    first, last = (stars[0], stars[-1]) if stars else (len(plain), len(plain) - 1)
    matched = {code(a.value): p for a, p in zip(plain[:first], listed, strict=False)}
    tail = plain[last + 1 :] if stars else []
    matched |= {code(a.value): p for a, p in zip(tail, listed[len(listed) - len(tail) :], strict=True)}
    return matched | {text: name for name, text in named.items()}


def in_kernel_terms(dimension: cst.BaseExpression, grid: Grid, available: set[str]) -> str:
    """Return a dimension of the grid as an expression over the kernel's parameters. Raises DoesNotApply."""
    return code(visited(dimension, _Translate(grid, available)))


def passed(dimension: cst.BaseExpression, grid: Grid) -> bool:
    """Tell whether the host knows a dimension before a configuration is chosen, so that a launch can pass it."""
    return not grid.meta or grid.meta not in names(dimension)


class _Translate(cst.CSTTransformer):
    def __init__(self, grid: Grid, available: set[str]) -> None:
        self.grid, self.known = grid, available

    def visit_BinaryOperation(self, node: cst.BinaryOperation) -> None:
        if not isinstance(node.operator, _OPERATORS):
            raise DoesNotApply(f"the grid computes {code(node)}")

    def visit_Attribute(self, node: cst.Attribute) -> None:
        if code(node) not in ("triton.cdiv", "tl.cdiv"):
            raise DoesNotApply(f"the grid asks for {code(node)}, which the kernel does not know")

    def visit_Subscript(self, node: cst.Subscript) -> bool:
        key = code(node).removeprefix(f"{self.grid.meta}[").removesuffix("]").strip("\"'")
        if not self.grid.meta or code(node.value) != self.grid.meta or key not in self.known:
            raise DoesNotApply(f"the grid asks for {code(node)}, which the kernel does not know")
        return False

    def leave_Subscript(self, original_node: cst.Subscript, updated_node: cst.Subscript) -> cst.BaseExpression:
        return expression(code(updated_node)[len(self.grid.meta) + 1 : -1].strip("\"'"))

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        return expression("tl.cdiv")

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        name = updated_node.value
        if name in ("triton", "tl", "cdiv") or name == self.grid.meta:
            return updated_node
        if name not in self.grid.arguments and name in self.grid.constants:
            return expression(self.grid.constants[name])
        if name not in self.grid.arguments:
            raise DoesNotApply(f"the grid depends on {name}, which the kernel does not get")
        return cst.Name(self.grid.arguments[name])
