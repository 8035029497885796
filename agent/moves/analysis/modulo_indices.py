"""Indices of a kernel that wrap around, `name = index % size`: found where what they are is plain from the text.

The index has one dimension, is never negative as far as its text tells, and is the same wherever that text stands: it
is made of numbers that are assigned once, above. Relies on libcst; helpers must have been inlined before.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst
from pgo_agent.agent.moves.analysis.cst_util import called, code, names, nodes, parameters, writes
from pgo_agent.agent.moves.analysis.def_use import assignments, plain, target

_RANGES = {"range", "static_range"}
_NUMBERS = {"program_id", "num_programs", "cdiv", "minimum", "maximum", "min", "max", "to", "cast", "load", "swizzle2d"}


@dataclass(frozen=True)
class Wrapped:
    """`name = index % size`."""

    name: str
    index: cst.BaseExpression
    size: str


def wrapped_indices(function: cst.FunctionDef) -> Iterator[Wrapped]:
    """Yield the wrapped indices at the top of a kernel whose size the launch passes."""
    given, count = set(parameters(function)), assignments(function)
    numbers = {n for n in given if not count[n]}  # names that stand for one number, from here on
    lines = (line for line in function.body.body if isinstance(line, cst.SimpleStatementLine))
    for small in (small for line in lines for small in line.body):
        assigned = writes(small)
        if not isinstance(small, cst.Assign) or any(count[n] != 1 or n in given for n in assigned):
            continue
        match target(small), plain(small.value):
            case str(name), cst.BinaryOperation(operator=cst.Modulo(), right=cst.Name(value=size), left=index):
                if size in given & numbers and _of_rows(index, numbers):
                    yield Wrapped(name, index, size)
        if _is_made_of(small.value, numbers, _NUMBERS):
            numbers |= assigned


def scalars(function: cst.FunctionDef) -> set[str]:
    """Return names that stand for one number or pointer wherever they are read: parameters, what is made of them, and
    the counts of loops."""
    count = assignments(function)
    found = {n for n in parameters(function) if not count[n]}
    for loop in (n for n in nodes(function.body) if isinstance(n, cst.For)):
        if isinstance(loop.target, cst.Name) and isinstance(loop.iter, cst.Call) and called(loop.iter) in _RANGES:
            found |= {loop.target.value} if count[loop.target.value] == 2 else set()
    for n in nodes(function.body):
        name = target(n)
        if isinstance(n, cst.Assign) and name and count[name] == 1 and _is_made_of(n.value, found, _NUMBERS - {"load"}):
            found.add(name)
    return found


def wrapped_names(function: cst.FunctionDef) -> set[str]:
    """Return names that some statement gives an index that wraps around; others may give them something else."""
    given = (n for n in nodes(function.body) if isinstance(n, cst.Assign))
    values = ((target(n), plain(n.value)) for n in given)
    return {
        name for name, v in values if name and isinstance(v, cst.BinaryOperation) and isinstance(v.operator, cst.Modulo)
    }


def _of_rows(index: cst.BaseExpression, numbers: set[str]) -> bool:
    """Whether an index has one dimension, and is never negative, as far as its text tells."""
    below = list(nodes(index))
    ranges = [n for n in below if isinstance(n, cst.Call) and code(n.func) == "tl.arange"]
    steps = (cst.Add, cst.Multiply)
    sums = all(isinstance(n.operator, steps) for n in below if isinstance(n, cst.BinaryOperation))
    others = any(isinstance(n, cst.Subscript | cst.UnaryOperation | cst.Comparison | cst.IfExp) for n in below)
    return len(ranges) == 1 and sums and not others and _is_made_of(index, numbers, {"arange", "program_id", "to"})


def _is_made_of(value: cst.BaseExpression, allowed: set[str], calls: set[str]) -> bool:
    made = names(value) <= {*allowed, "tl", "min", "max"}
    return made and all(called(n) in calls for n in nodes(value) if isinstance(n, cst.Call))
